/**
 * Sends bytes of any length as one request, as they are read.
 *
 * Contract: returns the response, and the address of the bytes that were sent. The service must take each chunk within the
 * stall time of the transport, and answer within `answer_ms` after the last one.
 * Bound: one copied chunk. Cancellation: by the signal.
 */
import type { Address } from '@ron/proto';
import type { Answer } from './answer.ts';
import { ObjectHasher } from './object-hasher.ts';
import type { OnProgress } from './progress.ts';
import { Stall } from './stall.ts';
import { keepAlive, type Transport } from './transport.ts';

export interface StreamedUploadInit {
  readonly method: 'POST' | 'PUT';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly total_bytes: number | undefined;
  readonly onProgress?: OnProgress | undefined;
  readonly signal: AbortSignal;
  /** Default: the deadline of the transport. */
  readonly answer_ms?: number;
}

export async function sendStreamed(
  transport: Transport,
  op: string,
  chunks: AsyncIterable<Uint8Array>,
  init: StreamedUploadInit,
): Promise<{ readonly response: Answer; readonly address: Address }> {
  const { method, path, headers, total_bytes, onProgress, answer_ms = transport.deadline_ms } = init;
  using _ = keepAlive();
  using stall = new Stall(op, transport.stall_ms, init.signal);
  const hasher = new ObjectHasher();
  const sent = async function* (): AsyncGenerator<Uint8Array, void, void> {
    // The timer runs only while the service is waited for.
    stall.pause();
    for await (const chunk of chunks) {
      hasher.update(chunk);
      stall.beat();
      // A copy: the platform may still send it when the buffer is reused.
      yield new Uint8Array(chunk);
      stall.pause();
      onProgress?.({ done_bytes: hasher.size, total_bytes });
    }
    stall.beat(answer_ms);
  };
  const body = ReadableStream.from(sent());
  const response = await transport.send(op, path, { method, headers, body, signal: stall.signal });
  return { response, address: hasher.finish() };
}
