/** Reproducible test content. */
import assert from 'node:assert/strict';

export const KIB = 1024;
export const MIB = 1024 * KIB;

/** Pseudo-random bytes (xorshift32), the same for the same seed. */
export function bytesOf(length: number, seed = 1): Buffer<ArrayBuffer> {
  const bytes = Buffer.alloc(length);
  let state = (seed * 2654435761) >>> 0 || 1;
  for (let at = 0; at < length; at += 4) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    if (at + 4 <= length) bytes.writeInt32LE(state | 0, at);
    else for (let rest = at; rest < length; rest += 1) bytes[rest] = state >>> (8 * (rest - at));
  }
  return bytes;
}

/** Compares bytes with a one-line message: the diff of `assert.deepEqual` takes minutes for megabytes. */
export function assertSameBytes(actual: Uint8Array, expected: Uint8Array, what = 'bytes'): void {
  if (Buffer.compare(actual, expected) === 0) return;
  const at = expected.findIndex((byte, index) => byte !== actual[index]);
  assert.fail(`${what}: got ${actual.length} bytes, expected ${expected.length}; first difference at ${at}`);
}
