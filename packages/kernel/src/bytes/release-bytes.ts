/**
 * Gives the memory of bytes back at once, instead of when the collector gets to it.
 *
 * What comes from a socket lies in memory of its own for each piece. Left to the collector, a gigabyte of such pieces makes it
 * run a hundred times, and the process grows by what has not been collected yet.
 *
 * Promise: afterwards the bytes are gone (a view of them has length 0), and nobody else's: a view of a part of its memory
 * is left alone. Only for whoever owns the bytes and knows that nothing reads them any more.
 */
export function releaseBytes(bytes: Uint8Array): void {
  const { buffer } = bytes;
  if (buffer instanceof ArrayBuffer && bytes.length > 0 && bytes.length === buffer.byteLength) buffer.transfer(0);
}
