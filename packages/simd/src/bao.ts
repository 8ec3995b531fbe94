/**
 * Verifiable slices of an object: a range of bytes with the tree nodes that connect it to the address.
 *
 *     length of the object (8 bytes, little-endian), then in pre-order, for each node that the range touches:
 *     a parent as two chaining values (64 bytes), a leaf as the bytes of a group
 *
 *              root                 a slice of group 1 alone is:
 *             /    \                length | v(01) v(23) | v0 v1 | bytes of group 1
 *         v(01)    v(23)
 *         /  \      /  \
 *        v0  v1    v2  v3
 *
 * This is the bao format with groups as leaves. The leading length is proven only if the slice contains the last group; a
 * range beyond the end therefore returns the last group. A verifier holds one group and one path of the tree, and returns no
 * byte before it is verified.
 */
import { BLAKE3_BYTES, blake3, parentValue, subtreeValue } from './blake3.ts';

const LENGTH_BYTES = 8;

export interface Tree {
  readonly size: number;
  readonly group_bytes: number;
  /** The chaining value of the subtree over `count` groups from `first` on. Never called for the whole tree. */
  value(first: number, count: number, signal: AbortSignal): Promise<Uint8Array>;
  /**
   * The bytes of the groups `first` to `last`, inclusive. They need not be verified: the reader of the slice verifies them.
   * In batches, each valid until the next is requested.
   */
  groups(first: number, last: number, signal: AbortSignal): AsyncIterable<readonly Uint8Array[]>;
}

export class SliceError extends Error {
  override readonly name = 'SliceError';
}

/** The groups of a slice. */
interface Span {
  readonly first: number;
  readonly last: number;
}

function spanOf(size: number, group_bytes: number, offset: number, length: number): Span {
  const groups = Math.max(1, Math.ceil(size / group_bytes));
  if (offset >= size) return { first: groups - 1, last: groups - 1 };
  const end = Math.min(size, offset + Math.max(length, 1));
  return { first: Math.floor(offset / group_bytes), last: Math.ceil(end / group_bytes) - 1 };
}

/** The number of groups in the left child: the largest power of two below `count`. */
function leftOf(count: number): number {
  return 2 ** (Math.ceil(Math.log2(count)) - 1);
}

const touches = (span: Span, first: number, count: number): boolean => first <= span.last && first + count > span.first;

/** The length of the slice that `encodeSlice` makes. */
export function sliceBytes(size: number, group_bytes: number, offset: number, length: number): number {
  const span = spanOf(size, group_bytes, offset, length);
  const pending = [{ first: 0, count: Math.max(1, Math.ceil(size / group_bytes)) }];
  let bytes = LENGTH_BYTES;
  for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
    if (!touches(span, node.first, node.count)) continue;
    if (node.first >= span.first && node.first + node.count - 1 <= span.last) {
      // The whole subtree: every group and the parents between them, one fewer than groups.
      const end = Math.min(size, (node.first + node.count) * group_bytes);
      bytes += end - node.first * group_bytes + (node.count - 1) * 2 * BLAKE3_BYTES;
      continue;
    }
    const left = leftOf(node.count);
    bytes += 2 * BLAKE3_BYTES;
    pending.push({ first: node.first, count: left }, { first: node.first + left, count: node.count - left });
  }
  return bytes;
}

/**
 * Encodes the slice over `length` bytes from `offset` on, in batches of pieces, each valid until the next is requested. Nodes
 * are sent together with the groups below them, once those groups have been read: a read error therefore ends the slice
 * before their nodes.
 */
export async function* encodeSlice(
  tree: Tree,
  offset: number,
  length: number,
  signal: AbortSignal,
): AsyncGenerator<readonly Uint8Array[], void, void> {
  const span = spanOf(tree.size, tree.group_bytes, offset, length);
  const nodes = new NodesBefore(tree, span, signal);
  let pieces: Uint8Array[] = [lengthHeader(tree.size)];
  for await (const groups of tree.groups(span.first, span.last, signal)) {
    for (const group of groups) {
      for (const pair of await nodes.next()) pieces.push(pair);
      // The only group of an empty object has no bytes.
      if (group.length > 0) pieces.push(group);
    }
    yield pieces;
    pieces = [];
  }
}

function lengthHeader(size: number): Uint8Array {
  const header = new Uint8Array(LENGTH_BYTES);
  new DataView(header.buffer).setBigUint64(0, BigInt(size), true);
  return header;
}

/** The parents of a slice in pre-order, grouped by the group that they directly precede. */
class NodesBefore {
  readonly #tree: Tree;
  readonly #span: Span;
  readonly #signal: AbortSignal;
  readonly #pending: { readonly first: number; readonly count: number }[];

  constructor(tree: Tree, span: Span, signal: AbortSignal) {
    this.#tree = tree;
    this.#span = span;
    this.#signal = signal;
    this.#pending = [{ first: 0, count: Math.max(1, Math.ceil(tree.size / tree.group_bytes)) }];
  }

  /** The parents before the next group of the span. */
  async next(): Promise<readonly Uint8Array[]> {
    const pairs: Uint8Array[] = [];
    for (let node = this.#pending.pop(); node !== undefined; node = this.#pending.pop()) {
      if (!touches(this.#span, node.first, node.count)) continue;
      if (node.count === 1) return pairs;
      const left = { first: node.first, count: leftOf(node.count) };
      const right = { first: node.first + left.count, count: node.count - left.count };
      const pair = new Uint8Array(2 * BLAKE3_BYTES);
      pair.set(await this.#tree.value(left.first, left.count, this.#signal));
      pair.set(await this.#tree.value(right.first, right.count, this.#signal), BLAKE3_BYTES);
      pairs.push(pair);
      this.#pending.push(right, left);
    }
    throw new SliceError('the tree returned more groups than requested');
  }
}

export interface VerifyInit {
  /** The 32 bytes of the address. */
  hash: Uint8Array;
  offset: number;
  length: number;
  group_bytes: number;
  /** Returns memory for the next group of this many bytes. Default: new memory for each, so that results may be kept. */
  memoryFor?(bytes: number): Uint8Array;
  /** Called with the object's length as the slice states it. It is proven if the slice contains the last group. */
  onSize?(size: number): void;
  /** Called for a subtree outside of the range, with its proven value, so that local bytes can be verified against it. */
  onSkipped?(subtree: Subtree): void;
}

/** A range of groups and its chaining value. */
export interface Subtree {
  readonly first: number;
  readonly count: number;
  readonly value: Uint8Array;
}

/**
 * Yields the bytes that `slice` proves, each only after it was verified. Throws SliceError if anything is wrong. A piece of
 * the slice is no longer read when the next one is requested.
 */
export async function* verifySlice(
  slice: AsyncIterable<Uint8Array>,
  init: VerifyInit,
): AsyncGenerator<Uint8Array, void, void> {
  const reader = new Reader(slice);
  try {
    const size = await readSize(reader);
    init.onSize?.(size);
    const span = spanOf(size, init.group_bytes, init.offset, init.length);
    const count = Math.max(1, Math.ceil(size / init.group_bytes));
    const pending: Expected[] = [{ first: 0, count, value: init.hash, isRoot: true }];
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      if (!touches(span, node.first, node.count)) {
        init.onSkipped?.(node);
        continue;
      }
      if (node.count > 1) {
        pending.push(...(await readParent(reader, node)));
        continue;
      }
      const bytes = cut(await readGroup(reader, node, size, init), node, init);
      if (bytes.length > 0) yield bytes;
    }
    await reader.expectEnd();
  } finally {
    await reader.close();
  }
}

interface Expected extends Subtree {
  readonly isRoot: boolean;
}

async function readSize(reader: Reader): Promise<number> {
  const header = await reader.read(new Uint8Array(LENGTH_BYTES));
  const size = new DataView(header.buffer, header.byteOffset).getBigUint64(0, true);
  if (size > BigInt(Number.MAX_SAFE_INTEGER)) throw new SliceError('the slice states an invalid length');
  return Number(size);
}

/** Reads and verifies a parent; returns its children, right one first. */
async function readParent(reader: Reader, node: Expected): Promise<Expected[]> {
  const pair = await reader.read(new Uint8Array(2 * BLAKE3_BYTES));
  const left = pair.subarray(0, BLAKE3_BYTES);
  const right = pair.subarray(BLAKE3_BYTES);
  check(parentValue(left, right, node.isRoot), node.value, `the tree from group ${node.first} on`);
  const split = leftOf(node.count);
  return [
    { first: node.first + split, count: node.count - split, value: right, isRoot: false },
    { first: node.first, count: split, value: left, isRoot: false },
  ];
}

async function readGroup(reader: Reader, node: Expected, size: number, init: VerifyInit): Promise<Uint8Array> {
  const start = node.first * init.group_bytes;
  const length = Math.min(init.group_bytes, size - start);
  const bytes = await reader.read(init.memoryFor?.(length) ?? new Uint8Array(length));
  const value = node.isRoot ? blake3(bytes) : subtreeValue(bytes, start);
  check(value, node.value, `group ${node.first}`);
  return bytes;
}

/** The requested part of a group. */
function cut(bytes: Uint8Array, node: Expected, init: VerifyInit): Uint8Array {
  const start = node.first * init.group_bytes;
  const from = Math.max(0, init.offset - start);
  const to = Math.min(bytes.length, init.offset + init.length - start);
  return bytes.subarray(from, Math.max(from, to));
}

function check(value: Uint8Array, expected: Uint8Array, what: string): void {
  let difference = value.length ^ expected.length;
  for (let at = 0; at < BLAKE3_BYTES; at++) difference |= (value[at] ?? 0) ^ (expected[at] ?? 0);
  if (difference !== 0) throw new SliceError(`${what} does not match the address`);
}

/** Reads exact lengths from a stream of pieces by copying; holds the piece in which the last read ended. */
class Reader {
  readonly #pieces: AsyncIterator<Uint8Array>;
  #rest: Uint8Array = new Uint8Array(0);

  constructor(stream: AsyncIterable<Uint8Array>) {
    this.#pieces = stream[Symbol.asyncIterator]();
  }

  /** Fills `into`. */
  async read(into: Uint8Array): Promise<Uint8Array> {
    for (let filled = 0; filled < into.length;) {
      if (this.#rest.length === 0) await this.#next(into.length - filled);
      const part = this.#take(Math.min(into.length - filled, this.#rest.length));
      into.set(part, filled);
      filled += part.length;
    }
    return into;
  }

  async expectEnd(): Promise<void> {
    while (this.#rest.length === 0) {
      const { done, value } = await this.#pieces.next();
      if (done === true) return;
      this.#rest = value;
    }
    throw new SliceError('bytes follow the end of the slice');
  }

  async close(): Promise<void> {
    await this.#pieces.return?.();
  }

  #take(bytes: number): Uint8Array {
    const part = this.#rest.subarray(0, bytes);
    this.#rest = this.#rest.subarray(bytes);
    return part;
  }

  async #next(wanted: number): Promise<void> {
    while (this.#rest.length === 0) {
      const { done, value } = await this.#pieces.next();
      if (done === true) throw new SliceError(`the slice ends ${wanted} bytes too early`);
      this.#rest = value;
    }
  }
}
