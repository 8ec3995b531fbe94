/**
 * Checks groups of a file against its tree.
 *
 * The value of a group inside a longer file is not its hash, and only our WebAssembly module computes it: 44 us for 64 KiB.
 * The native hash of the same bytes takes 12 us. So the first check of a group compares its value, and keeps the native hash
 * of the bytes that passed; later checks compare that.
 *
 * Contract: `matches` is true only if the bytes have the value that the tree has for the group. The kept hashes come from
 * verified bytes and never from a disk.
 * Bound: 32 bytes for each group that was read, in blocks of 1024 groups (64 MiB of the file).
 */
import { blake3 } from '@napi-rs/blake-hash';
import { BLAKE3_BYTES } from '@ron/simd';
import type { GroupTree } from '../hashes/group-tree.ts';
import { groupValue } from '../hashes/group-values.ts';

const BLOCK_GROUPS = 1024;

interface Block {
  readonly hashes: Buffer;
  readonly isKnown: Uint8Array;
}

export class GroupChecks {
  readonly #tree: GroupTree;
  readonly #blocks: (Block | undefined)[] = [];

  constructor(tree: GroupTree) {
    this.#tree = tree;
  }

  matches(group: number, bytes: Uint8Array): boolean {
    const hash = blake3(bytes);
    // The value of the only group of a file is its hash.
    if (this.#tree.count === 1) return hash.equals(this.#tree.values);
    const block = (this.#blocks[Math.floor(group / BLOCK_GROUPS)] ??= {
      hashes: Buffer.alloc(BLOCK_GROUPS * BLAKE3_BYTES),
      isKnown: new Uint8Array(BLOCK_GROUPS),
    });
    const at = group % BLOCK_GROUPS;
    const start = at * BLAKE3_BYTES;
    if (block.isKnown[at] === 1) return block.hashes.compare(hash, 0, BLAKE3_BYTES, start, start + BLAKE3_BYTES) === 0;
    if (Buffer.compare(groupValue(bytes, group, this.#tree.size), this.#tree.at(group)) !== 0) return false;
    block.hashes.set(hash, start);
    block.isKnown[at] = 1;
    return true;
  }
}
