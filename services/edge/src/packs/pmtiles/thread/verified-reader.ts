/**
 * Reads ranges of a hashed file in a thread, verified by the values of its groups.
 *
 * Contract: the bytes match the values, or `validation`. Bound: the requested bytes, and one group that is kept for the next
 * read, because neighbouring directories share groups.
 */
import { RonError } from '@ron/kernel/core';
import { GROUP_BYTES } from '@ron/simd';
import type { TreeParts } from '../../hashes/group-tree.ts';
import { groupLength, groupValue } from '../../hashes/group-values.ts';
import { readFully } from '../../hashes/thread/hash-file.ts';

export class VerifiedReader {
  readonly #fd: number;
  readonly #tree: TreeParts;
  #group: Buffer = Buffer.alloc(0);
  #index = -1;

  constructor(fd: number, tree: TreeParts) {
    this.#fd = fd;
    this.#tree = tree;
  }

  /** A copy of `length` bytes from `offset` on. The range lies within the file. */
  read(offset: number, length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length);
    for (let filled = 0; filled < length;) {
      const position = offset + filled;
      const group = this.#load(Math.floor(position / GROUP_BYTES));
      filled += group.copy(bytes, filled, position % GROUP_BYTES);
    }
    return bytes;
  }

  #load(index: number): Buffer {
    if (index === this.#index) return this.#group;
    const bytes = Buffer.allocUnsafe(groupLength(this.#tree.size, index));
    readFully(this.#fd, bytes, index * GROUP_BYTES);
    const value = groupValue(bytes, index, this.#tree.size);
    const expected = this.#tree.values.subarray(index * value.length, (index + 1) * value.length);
    if (Buffer.compare(value, expected) !== 0) {
      throw new RonError(
        'validation',
        `the bytes from ${index * GROUP_BYTES} on do not match the sidecar: the pack is damaged. Replace it with a good copy`,
      );
    }
    this.#group = bytes;
    this.#index = index;
    return bytes;
  }
}
