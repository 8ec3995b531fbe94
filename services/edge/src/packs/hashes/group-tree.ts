/**
 * The BLAKE3 tree of a file over its 64 KiB groups: the values that reads are checked by, and the inner values of proofs.
 *
 * Contract: the values combine to the address of the file. The value of a file of one group is the address itself, because
 * the root of its tree is inside the group.
 * Bound: 32 bytes for each 64 KiB of the file (0.05 %), and 1/63 of that for inner values. `value` combines at most 64
 * values, which takes about 25 us.
 */
import { formatAddress, type Address } from '@ron/proto';
import { BLAKE3_BYTES, GROUP_BYTES, parentValue, parentValues } from '@ron/simd';
import { assert } from '@ron/kernel/core';
import type { GroupHashes } from '../pack.ts';

/** Inner values are kept for subtrees of 2^6 groups and more; smaller ones are combined when they are needed. */
const KEPT_LEVEL = 6;

export const groupCount = (size: number): number => Math.max(1, Math.ceil(size / GROUP_BYTES));

/** A tree as it crosses from a thread: plain members. */
export interface TreeParts {
  readonly size: number;
  readonly address: Address;
  readonly values: Uint8Array;
  /** The packed values of subtrees of 64, 128, ... groups. */
  readonly inner: readonly Uint8Array[];
}

/** Combines the values of all groups. Takes 0.4 us for each: for threads. */
export function treeParts(size: number, values: Uint8Array): TreeParts {
  assert(values.length === groupCount(size) * BLAKE3_BYTES, 'a file has one value for each group');
  const levels = levelsOf(values);
  return { size, values, address: formatAddress(rootOf(levels.at(-1)!)), inner: levels.slice(KEPT_LEVEL) };
}

export class GroupTree implements GroupHashes {
  readonly size: number;
  readonly count: number;
  readonly values: Uint8Array;
  readonly address: Address;
  readonly #inner: readonly Uint8Array[];

  constructor({ size, address, values, inner }: TreeParts) {
    this.size = size;
    this.count = groupCount(size);
    this.values = values;
    this.address = address;
    this.#inner = inner;
  }

  /** The value of one group. */
  at(group: number): Uint8Array {
    return this.values.subarray(group * BLAKE3_BYTES, (group + 1) * BLAKE3_BYTES);
  }

  /** The chaining value over `count` groups from `first` on: a subtree of this tree, and not the whole. */
  value(first: number, count: number): Uint8Array {
    const height = Math.ceil(Math.log2(count));
    if (height < KEPT_LEVEL)
      return combined(this.values.subarray(first * BLAKE3_BYTES, (first + count) * BLAKE3_BYTES));
    const at = (first / 2 ** height) * BLAKE3_BYTES;
    return this.#inner[height - KEPT_LEVEL]!.subarray(at, at + BLAKE3_BYTES);
  }
}

/** The values of all levels, from the groups up to the last two values (or the only one). */
function levelsOf(values: Uint8Array): Uint8Array[] {
  const levels = [values];
  for (let level = values; level.length > 2 * BLAKE3_BYTES; levels.push(level)) level = parentsInParts(level);
  return levels;
}

/** The module's memory grows to its largest input and never shrinks, so a long level is combined in parts. */
const PART_BYTES = 4096 * BLAKE3_BYTES;

function parentsInParts(values: Uint8Array): Uint8Array {
  if (values.length <= PART_BYTES) return parentValues(values);
  const parents = new Uint8Array(Math.ceil(values.length / (2 * BLAKE3_BYTES)) * BLAKE3_BYTES);
  for (let at = 0; at < values.length; at += PART_BYTES) {
    parents.set(parentValues(values.subarray(at, at + PART_BYTES)), at / 2);
  }
  return parents;
}

function rootOf(top: Uint8Array): Uint8Array {
  if (top.length === BLAKE3_BYTES) return top;
  return parentValue(top.subarray(0, BLAKE3_BYTES), top.subarray(BLAKE3_BYTES), true);
}

function combined(values: Uint8Array): Uint8Array {
  let level = values;
  while (level.length > BLAKE3_BYTES) level = parentValues(level);
  return level;
}
