/**
 * Frees the memory of a byte array at once, instead of at the next garbage collection.
 *
 * Each chunk from a socket has its own allocation. Left to the collector, a gigabyte of chunks triggers a hundred
 * collections, and the process grows in between.
 *
 * Contract: afterwards the array has length 0. A view of a part of its buffer is left unchanged. The caller must own the
 * bytes, and nothing may read them any more.
 */
export function releaseBytes(bytes: Uint8Array): void {
  const { buffer } = bytes;
  if (buffer instanceof ArrayBuffer && bytes.length > 0 && bytes.length === buffer.byteLength) buffer.transfer(0);
}
