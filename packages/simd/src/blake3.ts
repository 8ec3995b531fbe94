/**
 * BLAKE3 subtree values, which make a range of an object verifiable against the address of the whole.
 *
 * A BLAKE3 hash is the root of a binary tree over chunks of 1 KiB. An object is stored in groups (64 KiB or another power of
 * two); each group is a complete subtree, whose chaining value is stored. The address is the combination of these values:
 *
 *     address = root(parent(v0, v1), parent(v2, v3))     v_i = subtreeValue(group i, i * group_bytes)
 *
 * Hashing the groups once therefore gives the address without a second pass over the bytes.
 */
import { INPUT_AT, memoryFor, simd } from './module.ts';

export const BLAKE3_BYTES = 32;
const CHUNK_BYTES = 1024;

/** The longest input of one call. */
export const SUBTREE_BYTES_MAX = simd.subtreeBytesMax();

function requireFits(bytes: Uint8Array): void {
  if (bytes.length > SUBTREE_BYTES_MAX) {
    throw new RangeError(`a subtree has at most ${SUBTREE_BYTES_MAX} bytes, got ${bytes.length}`);
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
 * The chaining value of the subtree over `bytes`, which begin at `offset_bytes` of a longer object. The offset must be a
 * multiple of a power of two that is at least `bytes.length`: only then do the bytes form one subtree.
 */
export function subtreeValue(bytes: Uint8Array, offset_bytes: number): Uint8Array<ArrayBuffer> {
  requireFits(bytes);
  const isAligned = offset_bytes === 0 || (Number.isSafeInteger(offset_bytes) && offset_bytes > 0);
  if (!isAligned || offset_bytes % Math.max(CHUNK_BYTES, powerOfTwoFor(bytes.length)) !== 0) {
    throw new RangeError(`${bytes.length} bytes at offset ${offset_bytes} do not form one subtree`);
  }
  if (bytes.length === 0) throw new RangeError('an empty subtree exists only as the empty object: use blake3');
  return subtree(bytes, offset_bytes / CHUNK_BYTES, false);
}

/** The hash of a whole input of at most SUBTREE_BYTES_MAX. */
export function blake3(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  requireFits(bytes);
  return subtree(bytes, 0, true);
}

/** The parent of two chaining values; with `isRoot`, the hash of the object that they form. */
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
 * The parents of adjacent packed chaining values, packed too, none of them a root. An odd last value is promoted unchanged.
 * One pair takes about 0.2 us, so callers with thousands of values should process them in parts.
 */
export function parentValues(values: Uint8Array): Uint8Array<ArrayBuffer> {
  if (values.length === 0 || values.length % BLAKE3_BYTES !== 0) {
    throw new RangeError(`packed chaining values have ${BLAKE3_BYTES} bytes each`);
  }
  const pairs = Math.floor(values.length / (2 * BLAKE3_BYTES));
  const memory = memoryFor(values.length);
  memory.set(values, INPUT_AT);
  for (let pair = 0; pair < pairs; pair++) {
    // Each result overwrites only pairs that were already read: `parent` writes it after it has read its pair.
    simd.parent(INPUT_AT + pair * 2 * BLAKE3_BYTES, 0, INPUT_AT + pair * BLAKE3_BYTES);
  }
  const parents = memory.slice(INPUT_AT, INPUT_AT + Math.ceil(values.length / (2 * BLAKE3_BYTES)) * BLAKE3_BYTES);
  if (values.length % (2 * BLAKE3_BYTES) !== 0) parents.set(values.subarray(-BLAKE3_BYTES), pairs * BLAKE3_BYTES);
  return parents;
}

/**
 * The address of an object from the values of its groups, in order; all groups but the last have the same length.
 * At least two: the address of an object of one group is `blake3(group)`, because its root is inside the group.
 */
export function combineSubtrees(values: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  if (values.length < 2) throw new RangeError('combining needs at least two subtree values');
  const pair = combineToPair(values);
  return parentValue(pair.subarray(0, BLAKE3_BYTES), pair.subarray(BLAKE3_BYTES), true);
}

/** The chaining value over adjacent values, in order; not a root. */
export function combineInner(values: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  return parentValues(combineToPair(values));
}

/** The last two values below the top, or the single value. */
function combineToPair(values: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  let level = new Uint8Array(values.length * BLAKE3_BYTES);
  values.forEach((value, index) => level.set(value, index * BLAKE3_BYTES));
  while (level.length > 2 * BLAKE3_BYTES) level = parentValues(level);
  return level;
}

function powerOfTwoFor(bytes: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(bytes, 1)));
}
