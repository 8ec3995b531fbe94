/** The words of the in-memory state of messages. */

/** The number of a message in the message table; reused after it is gone. `NONE` stands for no message. */
export type Slot = number;
export const NONE = -1;

/**
 * ready --take--> leased --settle--> (acked: slot freed | dead) --settle--> (removed: slot freed)
 *   ^               |
 *   |               v nack, timeout
 *   `------------ delayed
 *
 * A message behind an earlier one of its key is `ready`. While an ack, a dead letter or a removal is syncing, the message is
 * also `settling`: no timer and no receiver touches it, and compaction does not move it.
 */
export const STATE = { free: 0, ready: 1, delayed: 2, leased: 3, dead: 4 } as const;
export type State = (typeof STATE)[keyof typeof STATE];

/** The decoded parts of a token. */
export interface TokenParts {
  readonly seq: number;
  readonly delivery: number;
  readonly nonce: number;
}
