/**
 * Posts a text to a server at a Unix socket.
 *
 * Contract: resolves with the whole answer. `unreachable` if there is no server or the connection ends early.
 * Bound: `bytes_max` of the answer, else `payload_too_large`. Cancellation: by the signal.
 */
import { request, type IncomingMessage } from '@ron/kernel/http';
import { RonError } from '@ron/kernel';

export interface SocketPostInit {
  readonly socket: string;
  readonly path: string;
  readonly body: string;
  readonly bytes_max: number;
  readonly signal: AbortSignal;
}

export async function postToSocket(init: SocketPostInit): Promise<{ status: number; text: string }> {
  const { socket, path, body, bytes_max, signal } = init;
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const outgoing = request({ socketPath: socket, path, method: 'POST', host: 'localhost', agent: false, signal });
  outgoing.once('response', resolve).on('error', reject);
  outgoing.end(body);
  try {
    const response = await promise;
    const pieces: Buffer[] = [];
    let bytes = 0;
    for await (const piece of response as AsyncIterable<Buffer>) {
      bytes += piece.length;
      if (bytes > bytes_max) throw new RonError('payload_too_large', `the answer has more than ${bytes_max} bytes`);
      pieces.push(piece);
    }
    return { status: response.statusCode ?? 0, text: Buffer.concat(pieces).toString('utf8') };
  } catch (cause) {
    signal.throwIfAborted();
    if (cause instanceof RonError) throw cause;
    throw new RonError('unreachable', `no server answers at the socket ${socket}`, { cause });
  } finally {
    outgoing.destroy();
  }
}
