/**
 * The address of bytes that come piece by piece, and the values of subtrees on the way.
 *
 * Promise: `finish` gives the address that storage gives to the same bytes, however they were cut into pieces.
 * Bound: one group of 64 KiB and one value for each level of the tree. Cancellation: nothing waits.
 *
 *     pieces: [----][------------][--]...      groups: |0       |1       |2
 *     values: a stack like a binary counter; after 7 groups it holds (0..3) (4..5) (6)
 */
import { assert } from '@ron/kernel/core';
import { formatAddress, type Address } from '@ron/proto';
import { blake3, parentValue, subtreeValue } from '@ron/simd';

export const GROUP_BYTES = 65_536;

export class ObjectHasher {
  readonly #values: Uint8Array[] = [];
  /** The group that is being filled. A full one waits until more comes: the last one is hashed differently. */
  readonly #group = new Uint8Array(GROUP_BYTES);
  #filled = 0;
  #groups = 0;
  #finished = false;

  /** Bytes so far. */
  get size(): number {
    return this.#groups * GROUP_BYTES + this.#filled;
  }

  update(bytes: Uint8Array): void {
    assert(!this.#finished, 'the hasher has finished');
    for (let at = 0; at < bytes.length;) {
      if (this.#filled === GROUP_BYTES) this.#push(this.#group);
      const rest = bytes.length - at;
      if (this.#filled === 0 && rest > GROUP_BYTES) {
        this.#push(bytes.subarray(at, at + GROUP_BYTES));
        at += GROUP_BYTES;
        continue;
      }
      const count = Math.min(rest, GROUP_BYTES - this.#filled);
      this.#group.set(bytes.subarray(at, at + count), this.#filled);
      this.#filled += count;
      at += count;
    }
  }

  finish(): Address {
    assert(!this.#finished, 'the hasher has finished');
    this.#finished = true;
    const last = this.#group.subarray(0, this.#filled);
    if (this.#groups === 0) return formatAddress(blake3(last));
    let value = subtreeValue(last, this.#groups * GROUP_BYTES);
    while (this.#values.length > 0) value = parentValue(this.#values.pop()!, value, this.#values.length === 0);
    return formatAddress(value);
  }

  /** A group that another one follows. */
  #push(group: Uint8Array): void {
    let value: Uint8Array = subtreeValue(group, this.#groups * GROUP_BYTES);
    this.#groups += 1;
    this.#filled = 0;
    for (let count = this.#groups; count % 2 === 0; count /= 2) value = parentValue(this.#values.pop()!, value, false);
    this.#values.push(value);
  }
}

/** The address of bytes in memory. */
export function addressOf(bytes: Uint8Array): Address {
  const hasher = new ObjectHasher();
  hasher.update(bytes);
  return hasher.finish();
}
