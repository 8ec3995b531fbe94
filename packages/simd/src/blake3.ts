/**
 * BLAKE3 subtree values: what lets a range of an object be proven against the address of the whole.
 *
 * A BLAKE3 hash is the root of a binary tree over chunks of 1 KiB. An object is stored in groups (64 KiB or another
 * power of two); each group is a complete subtree, its chaining value is kept, and the address is what the values
 * combine to:
 *
 *     address = root(parent(v0, v1), parent(v2, v3))     v_i = subtreeValue(group i, i * group_bytes)
 *
 * So hashing the groups once gives the address, with no second pass over the bytes.
 */
import { INPUT_AT, memoryFor, simd } from './module.ts';

export const BLAKE3_BYTES = 32;
const CHUNK_BYTES = 1024;

/** The longest input of one call. */
export const SUBTREE_BYTES_MAX = simd.subtreeBytesMax();

function requireFits(bytes: Uint8Array): void {
  if (bytes.length > SUBTREE_BYTES_MAX) {
    throw new RangeError(`a subtree holds at most ${SUBTREE_BYTES_MAX} bytes, got ${bytes.length}`);
  }
}

function subtree(bytes: Uint8Array, chunk_index: number, isRoot: boolean): Uint8Array<ArrayBuffer> {
  const out = INPUT_AT;
  const input = INPUT_AT + BLAKE3_BYTES;
  const memory = memoryFor(BLAKE3_BYTES + bytes.length);
  memory.set(bytes, input);
  simd.subtree(input, bytes.length, BigInt(chunk_index), isRoot ? 1 : 0, out);
  return memory.slice(out, out + BLAKE3_BYTES);
}

/**
 * The chaining value of the subtree over `bytes`, which begin at `offset_bytes` of an object that is longer than they are.
 * The offset is a multiple of a power of two that is at least as long as `bytes`: only then they are one subtree.
 */
export function subtreeValue(bytes: Uint8Array, offset_bytes: number): Uint8Array<ArrayBuffer> {
  requireFits(bytes);
  const isAligned = offset_bytes === 0 || (Number.isSafeInteger(offset_bytes) && offset_bytes > 0);
  if (!isAligned || offset_bytes % Math.max(CHUNK_BYTES, powerOfTwoFor(bytes.length)) !== 0) {
    throw new RangeError(`${bytes.length} bytes at offset ${offset_bytes} are not one subtree`);
  }
  if (bytes.length === 0) throw new RangeError('an empty subtree exists only as the empty object: use blake3');
  return subtree(bytes, offset_bytes / CHUNK_BYTES, false);
}

/** The hash of a whole input of at most SUBTREE_BYTES_MAX. */
export function blake3(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  requireFits(bytes);
  return subtree(bytes, 0, true);
}

/** The parent of two chaining values; with `isRoot`, the hash of the object that they make. */
export function parentValue(left: Uint8Array, right: Uint8Array, isRoot: boolean): Uint8Array<ArrayBuffer> {
  if (left.length !== BLAKE3_BYTES || right.length !== BLAKE3_BYTES) {
    throw new RangeError(`a chaining value has ${BLAKE3_BYTES} bytes`);
  }
  const memory = memoryFor(3 * BLAKE3_BYTES);
  const pair = INPUT_AT + BLAKE3_BYTES;
  memory.set(left, pair);
  memory.set(right, pair + BLAKE3_BYTES);
  simd.parent(pair, isRoot ? 1 : 0, INPUT_AT);
  return memory.slice(INPUT_AT, INPUT_AT + BLAKE3_BYTES);
}

/**
 * The address of an object from the values of its groups, in order; all groups but the last have the same length.
 * At least two: an object of one group is `blake3(group)`, because its root is inside the group.
 */
export function combineSubtrees(values: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  if (values.length < 2) throw new RangeError('combining needs at least two subtree values');
  let level = values;
  while (level.length > 2) {
    const next: Uint8Array[] = [];
    for (let at = 0; at + 1 < level.length; at += 2) next.push(parentValue(level[at]!, level[at + 1]!, false));
    if (level.length % 2 === 1) next.push(level.at(-1)!);
    level = next;
  }
  return parentValue(level[0]!, level[1]!, true);
}

function powerOfTwoFor(bytes: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(bytes, 1)));
}
