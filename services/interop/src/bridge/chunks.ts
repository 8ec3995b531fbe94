/**
 * A body in chunks of at most 64 KiB.
 *
 * Contract: the bytes in order, no empty chunk. A chunk is read only when the consumer calls `next`, so a reader that waits for its
 * consumer stops the client.
 * Bound: one piece of the source. Cancellation: by the source; leaving the loop closes it.
 */
import { INTEROP_LIMITS } from '@ron/proto';

export async function* chunksOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  const { chunk_bytes } = INTEROP_LIMITS;
  for await (const piece of body) {
    // [interop I-10] However the client framed the body, storage gets chunks of bounded size.
    for (let at = 0; at < piece.length; at += chunk_bytes) yield piece.subarray(at, at + chunk_bytes);
  }
}
