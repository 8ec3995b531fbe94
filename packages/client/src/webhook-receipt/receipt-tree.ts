/**
 * Trees over receipts, shaped as in RFC 6962, with BLAKE3.
 *
 *     leaf = b3(00 || canonical JSON of the receipt)      node = b3(01 || left || right)
 *
 * Contract: the prefixes keep a node from passing for a leaf. Leaves without a receipt, `b3(00)`, pad a tree to a power of two:
 * an RFC 6962 root does not commit to its size, but here the length of every path is log2 of the size.
 * Bound: the caller limits the size; a tree of 128 leaves takes 127 hashes.
 */
import { canonicalReceipt, type WebhookReceipt } from '@ron/proto';
import { blake3, BLAKE3_BYTES } from '@ron/simd';

type Hash = Uint8Array<ArrayBuffer>;

const LEAF = 0;
const NODE = 1;

export function receiptLeaf(receipt: WebhookReceipt): Hash {
  return leafOfText(new TextEncoder().encode(canonicalReceipt(receipt)));
}

/** The leaf of a canonical text. */
export function leafOfText(text: Uint8Array): Hash {
  const bytes = new Uint8Array(1 + text.length);
  bytes[0] = LEAF;
  bytes.set(text, 1);
  return blake3(bytes);
}

const NO_RECEIPT = leafOfText(new Uint8Array(0));

function nodeOf(left: Uint8Array, right: Uint8Array): Hash {
  const bytes = new Uint8Array(1 + 2 * BLAKE3_BYTES);
  bytes[0] = NODE;
  bytes.set(left, 1);
  bytes.set(right, 1 + BLAKE3_BYTES);
  return blake3(bytes);
}

/** The leaves of a tree over this many receipts, at least one. */
export const treeSize = (receipts: number): number => 2 ** Math.ceil(Math.log2(receipts));

function padded(leaves: readonly Uint8Array[]): readonly Uint8Array[] {
  if (leaves.length === 0) throw new RangeError('a tree has at least one receipt');
  return [...leaves, ...Array.from({ length: treeSize(leaves.length) - leaves.length }, () => NO_RECEIPT)];
}

/** The nodes above a level. */
function above(level: readonly Uint8Array[]): Uint8Array[] {
  return Array.from({ length: level.length / 2 }, (_, at) => nodeOf(level[2 * at]!, level[2 * at + 1]!));
}

/** The root over the leaves of at least one receipt. */
export function treeRoot(leaves: readonly Uint8Array[]): Uint8Array {
  let level = padded(leaves);
  while (level.length > 1) level = above(level);
  return level[0]!;
}

/** The siblings on the way from the leaf of a receipt to the root. */
export function treePath(leaves: readonly Uint8Array[], index: number): Uint8Array[] {
  const path: Uint8Array[] = [];
  let level = padded(leaves);
  for (let at = index; level.length > 1; at >>>= 1) {
    path.push(level[at ^ 1]!);
    level = above(level);
  }
  return path;
}

/** The root to which a path leads. */
export function rootFromPath(leaf: Uint8Array, index: number, path: readonly Uint8Array[]): Uint8Array {
  let hash = leaf;
  for (const [level, sibling] of path.entries()) {
    hash = ((index >>> level) & 1) === 1 ? nodeOf(sibling, hash) : nodeOf(hash, sibling);
  }
  return hash;
}
