/**
 * Cuts an answer that cannot be completed.
 *
 * Contract: the client detects the truncation. An answer with a length or in chunks is cut by closing the connection.
 * An answer that is delimited by the end of its connection (HTTP/1.0 with an unknown length) would look complete: its
 * connection is reset. A Unix socket cannot be reset and is closed.
 *
 *   res.writeHead(200, head);
 *   watchFraming(res);
 *   cutAnswer(res);
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { resetConnection } from '../connection/node-internals.ts';

const kEndsWithConnection = Symbol('ron.ends-with-connection');

interface Marked extends Socket {
  [kEndsWithConnection]?: true;
}

/** Call it when the head of an answer without a length is written. */
export function watchFraming(res: ServerResponse): void {
  if (res.req.method === 'HEAD' || res.chunkedEncoding || res.socket === null) return;
  (res.socket as Marked)[kEndsWithConnection] = true;
}

export function cutAnswer(res: ServerResponse): void {
  if (res.socket === null) res.destroy();
  else cutConnection(res.socket);
}

/** Like `cutAnswer`, for the answer in progress on a connection, if any. */
export function cutConnection(socket: Socket): void {
  if ((socket as Marked)[kEndsWithConnection] === true) resetConnection(socket);
  else socket.destroy();
}
