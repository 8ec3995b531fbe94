/** Functions that run in threads: signing and verification. Few imports, so that a thread starts fast. */
import { sign, verify, type KeyObject } from 'node:crypto';
import { packed, unpacked, type Packed } from './packed.ts';

/** Resolves once the thread is running. */
export const ready = (): void => undefined;

/** `which`: the index in `keys` of each message's key. */
export function signAll(keys: readonly KeyObject[], which: Uint16Array, messages: Packed): Packed {
  return packed(unpacked(messages).map((message, at) => sign(null, message, keys[which[at]!]!)));
}

/** Returns 1 for each signature that verifies. `pieces` alternates messages and signatures. */
export function verifyAll(keys: readonly KeyObject[], which: Uint16Array, pieces: Packed): Uint8Array {
  const all = unpacked(pieces);
  return Uint8Array.from(which, (key, at) => (isGood(keys[key]!, all[2 * at]!, all[2 * at + 1]!) ? 1 : 0));
}

/** Never throws: other callers' signatures are in the same batch. */
function isGood(key: KeyObject, message: Uint8Array, signature: Uint8Array): boolean {
  try {
    return verify(null, message, key, signature);
  } catch {
    return false;
  }
}
