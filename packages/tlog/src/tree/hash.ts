/**
 * The hashes of an RFC 6962 tree over SHA-256: a leaf is H(0x00 || entry), a node H(0x01 || left || right).
 *
 * `crypto.hash` with a string result costs a third of one with a buffer result, and hashing dominates the cost of a tree; so
 * the digest is requested as latin1 and written to its destination.
 */
import { hash } from 'node:crypto';
import { assert } from '@ron/kernel';

export const HASH_BYTES = 32;
/** The root of an empty tree: the hash of the empty string. */
export const EMPTY_ROOT: Uint8Array = hash('sha256', new Uint8Array(0), 'buffer');

const LEAF = 0x00;
const NODE = 0x01;
const SCRATCH_BYTES = 1 + 65_535;

const leafInput = Buffer.alloc(SCRATCH_BYTES, LEAF);
const nodeInput = Buffer.alloc(1 + 2 * HASH_BYTES, NODE);

const digest = (input: Uint8Array): Buffer => Buffer.from(hash('sha256', input, 'latin1'), 'latin1');

export function leafHash(entry: Uint8Array): Buffer {
  if (entry.length >= SCRATCH_BYTES) return digest(Buffer.concat([Uint8Array.of(LEAF), entry]));
  leafInput.set(entry, 1);
  return digest(leafInput.subarray(0, 1 + entry.length));
}

export function nodeHash(left: Uint8Array, right: Uint8Array): Buffer {
  assert(left.length === HASH_BYTES && right.length === HASH_BYTES, 'a node has two hashes below it');
  nodeInput.set(left, 1);
  nodeInput.set(right, 1 + HASH_BYTES);
  return digest(nodeInput);
}

/** The parent hashes of each pair of `hashes`; a last hash without a sibling is omitted. */
export function hashPairs(hashes: Uint8Array): Buffer {
  const pairs = Math.floor(hashes.length / (2 * HASH_BYTES));
  const above = Buffer.allocUnsafe(pairs * HASH_BYTES);
  for (let pair = 0; pair < pairs; pair++) {
    nodeInput.set(hashes.subarray(pair * 2 * HASH_BYTES, (pair + 1) * 2 * HASH_BYTES), 1);
    above.write(hash('sha256', nodeInput, 'latin1'), pair * HASH_BYTES, HASH_BYTES, 'latin1');
  }
  return above;
}
