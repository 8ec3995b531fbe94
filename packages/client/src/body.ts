/**
 * Bodies of writes: bytes, a Blob, a stream, or a source that can be read again from any offset.
 *
 * Contract: a write of a rereadable body is resumed after a failure; a stream is read once, so it is sent once.
 */

import type { ByteStream } from './answer.ts';

/** Bytes that can be read as often as needed: a file, for example. They must not change meanwhile. */
export interface ReplayableBody {
  readonly size: number;
  /** The bytes from `start` on. */
  read(start: number): AsyncIterable<Uint8Array>;
}

export type PutBody = Uint8Array | Blob | ReplayableBody | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

export function isReplayable(body: PutBody): body is Uint8Array | Blob | ReplayableBody {
  // A stream of Node has a `read` too, and more.
  return body instanceof Uint8Array || body instanceof Blob || ('size' in body && !(Symbol.asyncIterator in body));
}

export function replayable(body: Uint8Array | Blob | ReplayableBody): ReplayableBody {
  if (body instanceof Uint8Array) return { size: body.length, read: (start) => once(body.subarray(start)) };
  if (body instanceof Blob) return { size: body.size, read: (start) => chunksOf(body.slice(start).stream()) };
  return body;
}

export function streamOf(body: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  return body instanceof ReadableStream ? chunksOf(body) : body;
}

/** The chunks of a stream. Written out because not every browser can iterate one. */
export async function* chunksOf(stream: ByteStream): AsyncGenerator<Uint8Array, void, void> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // Does nothing after the last chunk and after an error.
    await reader.cancel().catch(() => undefined);
  }
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  if (bytes.length > 0) yield bytes;
}

/**
 * The same bytes in pieces of `piece_bytes`; the last one may be shorter. A piece is valid until the one after the next is
 * requested: two buffers alternate.
 */
export async function* inPieces(
  chunks: AsyncIterable<Uint8Array>,
  piece_bytes: number,
): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
  let piece = new Uint8Array(piece_bytes);
  let spare = new Uint8Array(piece_bytes);
  let filled = 0;
  for await (const chunk of chunks) {
    for (let at = 0; at < chunk.length;) {
      const count = Math.min(chunk.length - at, piece_bytes - filled);
      piece.set(chunk.subarray(at, at + count), filled);
      filled += count;
      at += count;
      if (filled < piece_bytes) continue;
      yield piece;
      [piece, spare] = [spare, piece];
      filled = 0;
    }
  }
  if (filled > 0) yield piece.subarray(0, filled);
}
