/**
 * Revocation by epoch: a capability carries the moment of its issue, and is good while that is not before the floor of its
 * subject.
 */
export interface RevocationEpochs {
  /** The lowest epoch still good for a subject. Called on every request: it must not wait. Throws when it cannot say. */
  floor(subject: string): number;
}

export const NOTHING_REVOKED: RevocationEpochs = { floor: () => 0 };
