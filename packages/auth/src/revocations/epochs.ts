/**
 * Revocation by epoch: a capability carries the time of its issue, and is valid while that time is not before the floor
 * of its subject.
 */
export interface RevocationEpochs {
  /** The lowest valid epoch of a subject. Called on every request: it must not wait. Throws if it is unknown. */
  floor(subject: string): number;
}

export const NOTHING_REVOKED: RevocationEpochs = { floor: () => 0 };
