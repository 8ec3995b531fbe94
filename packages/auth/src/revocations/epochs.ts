/**
 * Revocation by epoch and by id. A capability carries the time of its issue, and is valid while that time is not before the
 * floor of its subject. It also carries its id and those of its issuers, none of which may be revoked.
 */
export interface RevocationEpochs {
  /** The lowest valid epoch of a subject. Called on every request: it must not wait. Throws if it is unknown. */
  floor(subject: string): number;
  /** Whether the capability with this id was revoked. Called on every request. */
  isRevoked(capability_id: string): boolean;
}

export const NOTHING_REVOKED: RevocationEpochs = { floor: () => 0, isRevoked: () => false };

/** The largest accepted difference between the clocks of two processes. */
export const CLOCK_SKEW_MS = 60_000;

/** Whether an epoch is later than the clock of any issuer can be. Such a capability would escape later revocations. */
export function isFromFuture(epoch: number, wall_ms: number): boolean {
  return epoch > wall_ms + CLOCK_SKEW_MS;
}

/** The floor that revokes every capability that is valid now, even one from an issuer whose clock is ahead. */
export function floorAt(wall_ms: number): number {
  return wall_ms + CLOCK_SKEW_MS + 1;
}

/** Whether a time in a revocation document is later than any clock of the node can have written it. */
export function isFloorFromFuture(time_ms: number, wall_ms: number): boolean {
  return time_ms > wall_ms + 2 * CLOCK_SKEW_MS;
}
