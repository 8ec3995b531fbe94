/**
 * Proofs over an RFC 6962 tree, made from any source of subtree hashes and verified with hashes alone.
 *
 * Contract: a proof that `verifyInclusion` or `verifyConsistency` accepts holds unless SHA-256 is broken. They never throw,
 * for any input. Bound: a path has at most 53 hashes for inclusion and 54 for consistency; the work is linear in it.
 *
 * Sizes are integers up to 2^53, so no arithmetic here uses the 32-bit operators.
 */
import { assert, RonError } from '@ron/kernel';
import { EMPTY_ROOT, HASH_BYTES, nodeHash } from './hash.ts';

/** A source of subtree hashes. */
export interface HashReader {
  /** The hash over the 2^height leaves from leaf `index * 2^height`; all of them must exist. */
  node(height: number, index: number): Promise<Uint8Array>;
}

/** A full subtree: its height, and its index among those of the same height. */
export interface Subtree {
  readonly height: number;
  readonly index: number;
}

/**
 * The full subtrees that cover leaves `start` to `end`, largest first. `start` must be a boundary of the largest one, which
 * holds for every range in a proof.
 */
export function subtreesOf(start: number, end: number): Subtree[] {
  const subtrees: Subtree[] = [];
  let at = start;
  while (at < end) {
    let height = 0;
    while (2 ** (height + 1) <= end - at) height += 1;
    assert(at % 2 ** height === 0, 'a range begins at a boundary of its largest subtree');
    subtrees.push({ height, index: at / 2 ** height });
    at += 2 ** height;
  }
  return subtrees;
}

/** The hash over adjacent subtrees, largest first; the empty root for none. */
export function foldPeaks(peaks: readonly Uint8Array[]): Uint8Array {
  return (
    peaks.reduceRight<Uint8Array | undefined>(
      (right, left) => (right === undefined ? left : nodeHash(left, right)),
      undefined,
    ) ?? EMPTY_ROOT
  );
}

/** The hash over leaves `start` to `end`. */
export async function rangeHash(reader: HashReader, start: number, end: number): Promise<Uint8Array> {
  const peaks: Uint8Array[] = [];
  for (const { height, index } of subtreesOf(start, end)) peaks.push(await reader.node(height, index));
  return foldPeaks(peaks);
}

/** The split point of a range of more than one leaf: the largest power of two below its length. */
function splitOf(length: number): number {
  let split = 1;
  while (split * 2 < length) split *= 2;
  return split;
}

/** The path from leaf `index` to the root of the tree of the first `size` leaves, lowest first. */
export async function inclusionProof(reader: HashReader, index: number, size: number): Promise<Uint8Array[]> {
  if (!isSize(index) || !isSize(size) || index >= size) {
    throw new RonError('not_found', `a tree of ${size} entries has no entry ${index}`);
  }
  const siblings: [number, number][] = [];
  let [start, end] = [0, size];
  while (end - start > 1) {
    const middle = start + splitOf(end - start);
    siblings.push(index < middle ? [middle, end] : [start, middle]);
    [start, end] = index < middle ? [start, middle] : [middle, end];
  }
  return await hashesOf(reader, siblings);
}

/** Proves that the tree of the first `from` leaves is a prefix of the tree of the first `to`. */
export async function consistencyProof(reader: HashReader, from: number, to: number): Promise<Uint8Array[]> {
  if (!isSize(from) || !isSize(to) || from > to) {
    throw new RonError('not_found', `a tree of ${to} entries has no prefix of ${from}`);
  }
  if (from === 0 || from === to) return [];
  const needed: [number, number][] = [];
  let [start, end] = [0, to];
  while (from < end) {
    const middle = start + splitOf(end - start);
    needed.push(from <= middle ? [middle, end] : [start, middle]);
    [start, end] = from <= middle ? [start, middle] : [middle, end];
  }
  // The root of the old tree is omitted: the verifier has it.
  if (start > 0) needed.push([start, end]);
  return await hashesOf(reader, needed);
}

async function hashesOf(reader: HashReader, topDown: readonly [number, number][]): Promise<Uint8Array[]> {
  const hashes: Uint8Array[] = [];
  for (const [start, end] of topDown.toReversed()) hashes.push(await rangeHash(reader, start, end));
  return hashes;
}

/** Proves that a leaf is in a tree; to be verified against the tree's root. */
export interface InclusionProof {
  readonly index: number;
  readonly size: number;
  /** The leaf hash. */
  readonly leaf: Uint8Array;
  readonly path: readonly Uint8Array[];
}

export interface Inclusion extends InclusionProof {
  readonly root: Uint8Array;
}

export function verifyInclusion({ leaf, index, size, path, root }: Inclusion): boolean {
  if (!isSize(index) || !isSize(size) || index >= size) return false;
  if (![leaf, root, ...path].every(isHash)) return false;
  const rest = [...path];
  /** The hash over the range, from the leaf and its siblings; the topmost sibling is last. */
  const climb = (start: number, end: number): Uint8Array | undefined => {
    if (end - start === 1) return rest.length === 0 ? leaf : undefined;
    const sibling = rest.pop();
    if (sibling === undefined) return undefined;
    const middle = start + splitOf(end - start);
    const isLeft = index < middle;
    const own = isLeft ? climb(start, middle) : climb(middle, end);
    if (own === undefined) return undefined;
    return isLeft ? nodeHash(own, sibling) : nodeHash(sibling, own);
  };
  const found = climb(0, size);
  return found !== undefined && isSame(found, root);
}

export interface Consistency {
  readonly from: number;
  readonly from_root: Uint8Array;
  readonly to: number;
  readonly to_root: Uint8Array;
  readonly path: readonly Uint8Array[];
}

export function verifyConsistency({ from, from_root, to, to_root, path }: Consistency): boolean {
  if (!isSize(from) || !isSize(to) || from > to) return false;
  if (![from_root, to_root, ...path].every(isHash)) return false;
  if (from === to) return path.length === 0 && isSame(from_root, to_root);
  if (from === 0) return path.length === 0 && isSame(from_root, EMPTY_ROOT);
  const rest = [...path];
  /** The hash of the range in the old tree and in the new one. */
  const climb = (start: number, end: number): { old: Uint8Array; now: Uint8Array } | undefined => {
    const own = rest.pop();
    if (from === end) {
      const hash = start === 0 ? from_root : own;
      if (rest.length > 0 || hash === undefined || (start === 0 && own !== undefined)) return undefined;
      return { old: hash, now: hash };
    }
    if (own === undefined) return undefined;
    const middle = start + splitOf(end - start);
    const below = from <= middle ? climb(start, middle) : climb(middle, end);
    if (below === undefined) return undefined;
    return from <= middle
      ? { old: below.old, now: nodeHash(below.now, own) }
      : { old: nodeHash(own, below.old), now: nodeHash(own, below.now) };
  };
  const found = climb(0, to);
  return found !== undefined && isSame(found.old, from_root) && isSame(found.now, to_root);
}

const isSize = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;
const isHash = (value: Uint8Array): boolean => value instanceof Uint8Array && value.length === HASH_BYTES;
export const isSame = (one: Uint8Array, other: Uint8Array): boolean => Buffer.compare(one, other) === 0;
