/**
 * Ends an answer that cannot be completed.
 *
 * Contract: the client detects the truncation. An answer with a length or in chunks is cut by closing the connection. One
 * that ends with its connection, which is how HTTP/1.0 gets answers of unknown length, would look whole: its connection
 * is reset. A Unix socket cannot be reset and is closed.
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

/** To be called when the head of an answer without a length is written. */
export function watchFraming(res: ServerResponse): void {
  if (res.req.method === 'HEAD' || res.chunkedEncoding || res.socket === null) return;
  (res.socket as Marked)[kEndsWithConnection] = true;
}

export function cutAnswer(res: ServerResponse): void {
  if (res.socket === null) res.destroy();
  else cutConnection(res.socket);
}

/** As `cutAnswer`, for the answer that the connection carries, if it does. */
export function cutConnection(socket: Socket): void {
  if ((socket as Marked)[kEndsWithConnection] === true) resetConnection(socket);
  else socket.destroy();
}
