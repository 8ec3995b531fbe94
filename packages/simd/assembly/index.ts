// The one WebAssembly module of ron: BLAKE3 subtree values and Reed-Solomon. See ../README.md for its interface.
import { compress4 } from './blake3';
export { multiply } from './reed-solomon';

const CHUNK_BYTES: usize = 1024;
const CHUNK_START: u32 = 1;
const CHUNK_END: u32 = 2;
const PARENT: u32 = 4;
const ROOT: u32 = 8;

// The values of the tree level being merged; a subtree of SUBTREE_BYTES_MAX has this many chunks, and the last
// group of four may write three values past its end.
const SUBTREE_CHUNKS_MAX: usize = 1024;
const values: usize = memory.data((1024 + 4) * 32, 16);
// Inputs that are shorter than a group of four are compressed from here, so that no load goes past the caller's bytes.
const padded: usize = memory.data(4 * 1024, 16);

export function subtreeBytesMax(): usize {
  return SUBTREE_CHUNKS_MAX * CHUNK_BYTES;
}

// Where the caller puts its bytes. Memory grows to hold them; memory below belongs to the module.
export function inputAt(): usize {
  return __heap_base;
}

function compressChunk(input: usize, length: usize, counter: u64, flags: u32, out: usize): void {
  memory.fill(padded, 0, CHUNK_BYTES);
  memory.copy(padded, input, length);
  const blocks: usize = length == 0 ? 1 : (length + 63) >> 6;
  const lengthLast = <u32>(length - ((blocks - 1) << 6));
  // The three other lanes read the same bytes (stride 0); their values are discarded.
  compress4(padded, 0, <u32>blocks, counter, 0, 0, CHUNK_START, CHUNK_END | flags, lengthLast, out);
}

function compressChunks(input: usize, length: usize, counter: u64): usize {
  let count: usize = 0;
  for (; length >= 4 * CHUNK_BYTES; length -= 4 * CHUNK_BYTES) {
    compress4(input, CHUNK_BYTES, 16, counter + count, 1, 0, CHUNK_START, CHUNK_END, 64, values + (count << 5));
    input += 4 * CHUNK_BYTES;
    count += 4;
  }
  while (length > 0) {
    const take = min(length, CHUNK_BYTES);
    compressChunk(input, take, counter + count, 0, values + (count << 5));
    input += take;
    length -= take;
    count++;
  }
  return count;
}

function compressParents(pairs: usize, flags: u32): void {
  for (let pair: usize = 0; pair < pairs; pair += 4) {
    // Reads at most three pairs past the end, inside `values`; writes land below everything that is still to be read.
    compress4(values + (pair << 6), 64, 1, 0, 0, PARENT | flags, 0, 0, 64, values + (pair << 5));
  }
}

// The chaining value of the subtree over `length` bytes whose first chunk has index `counter`; with `root` set, the hash
// of an input that consists of this subtree. Pairing neighbours level by level and promoting an odd one gives the
// left-balanced tree of BLAKE3.
export function subtree(input: usize, length: usize, counter: u64, root: bool, out: usize): void {
  if (length <= CHUNK_BYTES) {
    compressChunk(input, length, counter, root ? ROOT : 0, values);
    memory.copy(out, values, 32);
    return;
  }
  let count = compressChunks(input, length, counter);
  while (count > 1) {
    const pairs = count >> 1;
    const odd = count & 1;
    const carry = values + ((count - 1) << 5);
    if (odd) memory.copy(padded, carry, 32);
    compressParents(pairs, root && count == 2 ? ROOT : 0);
    if (odd) memory.copy(values + (pairs << 5), padded, 32);
    count = pairs + odd;
  }
  memory.copy(out, values, 32);
}

// The parent of two adjacent chaining values at `pair`.
export function parent(pair: usize, root: bool, out: usize): void {
  compress4(pair, 0, 1, 0, 0, PARENT | (root ? ROOT : 0), 0, 0, 64, values);
  memory.copy(out, values, 32);
}
