/**
 * Lingering close: closes a connection while the client is still sending.
 *
 * Contract: an answer that is sent before the whole request was read reaches the client. Closing at once would make the
 * kernel reset the connection and discard the answer. So the write side is closed, incoming bytes are discarded for a
 * while, then the socket is closed.
 * Bound: `LINGER_MS` and `LINGER_BYTES` per connection.
 * Cancellation: destroying the socket ends it.
 */
import type { Socket } from 'node:net';
import { sched } from '@ron/kernel';
import { stopAfterThisRequest } from './node-internals.ts';

const LINGER_MS = 1000;
const LINGER_BYTES = 1024 * 1024;
const LOOK_MS = 50;

/** Detaches the socket from Node's parser: further bytes are discarded, not read as body or requests. */
export function stopParsing(socket: Socket): void {
  stopAfterThisRequest(socket);
  // Adding a listener makes Node detach its native parser from the stream; its own listener would still feed the parser.
  socket.on('data', discard);
  for (const listener of socket.listeners('data')) if (listener !== discard) socket.off('data', listener as () => void);
  socket.resume();
}

/** The value of `bytesRead` at which a lingering socket is destroyed. */
const kUntilBytes = Symbol('ron.linger');

interface Lingering extends Socket {
  [kUntilBytes]?: number;
}

function discard(this: Lingering): void {
  if (this.bytesRead > (this[kUntilBytes] ?? Infinity)) this.destroy();
}

/** Call before the last answer is written; it takes effect when Node closes the socket after that answer. */
export function lingerOnClose(socket: Socket): void {
  socket.destroySoon = () => startLinger(socket);
}

/** Closes the write side, and destroys the socket when the client closes too or exceeds its time or bytes. Idempotent. */
export function startLinger(socket: Socket): void {
  if (socket.destroyed || (socket as Lingering)[kUntilBytes] !== undefined) return;
  stopParsing(socket);
  const until_ms = sched.now_ms() + LINGER_MS;
  const until_bytes = socket.bytesRead + LINGER_BYTES;
  (socket as Lingering)[kUntilBytes] = until_bytes;
  const look = (): void => {
    if (socket.destroyed) return;
    if (socket.readableEnded || sched.now_ms() >= until_ms) socket.destroy();
    else sched.timer(LOOK_MS, look, 'ingress-linger');
  };
  socket.end(look);
}
