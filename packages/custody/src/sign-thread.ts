/**
 * What a thread of the soft backends does: many signatures of one Ed25519 key, one after another.
 *
 * A single one is made at once where it is asked for: the way to a thread costs as much. Of many, each one less on the
 * event loop leaves it to the requests.
 * Messages come, and signatures go, in one piece: one copy for all of them.
 */
import { sign, type KeyObject } from 'node:crypto';

export const ED25519_BYTES = 64;

/** `ends`: where each message ends in `messages`. The signatures, one behind the other. */
export function signEach(key: KeyObject, messages: Uint8Array, ends: readonly number[]): Uint8Array {
  const signatures = new Uint8Array(ends.length * ED25519_BYTES);
  let start = 0;
  for (const [index, end] of ends.entries()) {
    signatures.set(sign(null, messages.subarray(start, end), key), index * ED25519_BYTES);
    start = end;
  }
  return signatures;
}
