/**
 * Checks bytes of a file against its tree.
 *
 * The value of a group inside a longer file is not its hash, and only our WebAssembly module computes it: 44 us for 64 KiB. The
 * native hash takes 12 us. So the first check of a group compares its value, and keeps the native hashes of the parts of the
 * bytes that passed. Later checks compare those, and only of the parts that are read.
 *
 * Contract: bytes pass only if they are those that matched the value of their group in the tree.
 * Bound: that of `PartHashes`.
 */
import type { GroupTree } from '../hashes/group-tree.ts';
import { groupValue } from '../hashes/group-values.ts';
import { GROUP_PARTS, PART_BYTES, partHash, type PartHashes } from './part-hashes.ts';

export class GroupChecks {
  readonly #tree: GroupTree;
  readonly #hashes: PartHashes;
  readonly #pack: number;

  /** `pack`: a number that no other pack has. */
  constructor(tree: GroupTree, hashes: PartHashes, pack: number) {
    this.#tree = tree;
    this.#hashes = hashes;
    this.#pack = pack;
  }

  /** Whether all parts of the range can be checked alone. */
  areKnown(start: number, end: number): boolean {
    const last = Math.ceil(end / PART_BYTES);
    for (let part = Math.floor(start / PART_BYTES); part < last; part++) {
      if (this.#hashes.get(this.#pack, part) === undefined) return false;
    }
    return true;
  }

  /** Whether known parts, from part `first` on, are right. */
  partsMatch(first: number, bytes: Uint8Array): boolean {
    for (let at = 0, part = first; at < bytes.length; at += PART_BYTES, part++) {
      if (partHash(bytes.subarray(at, at + PART_BYTES)) !== this.#hashes.get(this.#pack, part)) return false;
    }
    return true;
  }

  /** Whether one whole group is right. */
  groupMatches(group: number, bytes: Uint8Array): boolean {
    const first = group * GROUP_PARTS;
    if (this.areKnown(first * PART_BYTES, first * PART_BYTES + bytes.length)) return this.partsMatch(first, bytes);
    if (Buffer.compare(groupValue(bytes, group, this.#tree.size), this.#tree.at(group)) !== 0) return false;
    for (let at = 0, part = first; at < bytes.length; at += PART_BYTES, part++) {
      this.#hashes.set(this.#pack, part, partHash(bytes.subarray(at, at + PART_BYTES)));
    }
    return true;
  }
}
