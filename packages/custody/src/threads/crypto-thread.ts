/** What threads compute: signatures with the keys that come along, and checks of signatures. Imports little: it starts fast. */
import { sign, verify, type KeyObject } from 'node:crypto';
import { packed, unpacked, type Packed } from './packed.ts';

/** A thread that answers runs. */
export const ready = (): void => undefined;

/** `which`: the place of each message's key in `keys`. */
export function signAll(keys: readonly KeyObject[], which: Uint16Array, messages: Packed): Packed {
  return packed(unpacked(messages).map((message, at) => sign(null, message, keys[which[at]!]!)));
}

/** 1 for each signature that is good. Messages and signatures take turns. */
export function verifyAll(keys: readonly KeyObject[], which: Uint16Array, pieces: Packed): Uint8Array {
  const all = unpacked(pieces);
  return Uint8Array.from(which, (key, at) => (isGood(keys[key]!, all[2 * at]!, all[2 * at + 1]!) ? 1 : 0));
}

/** Never throws: checks of others are in the same hop. */
function isGood(key: KeyObject, message: Uint8Array, signature: Uint8Array): boolean {
  try {
    return verify(null, message, key, signature);
  } catch {
    return false;
  }
}
