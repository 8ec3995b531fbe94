/**
 * Closing a connection on a client that is still sending.
 *
 * Promise: an answer given before the whole request was read reaches the client: closing at once would make the kernel
 * reset the connection and throw the answer away. We stop writing, go on discarding for a while, then close.
 * Bound: `LINGER_MS` and `LINGER_BYTES` per connection. Cancellation: destroying the socket ends it.
 */
import type { Socket } from 'node:net';
import { sched } from '@ron/kernel';
import { stopAfterThisRequest } from './node-internals.ts';

const LINGER_MS = 1000;
const LINGER_BYTES = 1024 * 1024;
const LOOK_MS = 50;

/** Takes the socket away from Node's parser: further bytes are discarded, not read as body or requests. */
export function stopParsing(socket: Socket): void {
  stopAfterThisRequest(socket);
  // Listening makes Node take the stream back from its native parser; its own listener would still feed it.
  socket.on('data', discard);
  for (const listener of socket.listeners('data')) if (listener !== discard) socket.off('data', listener as () => void);
  socket.resume();
}

/** How many bytes a socket that lingers may have brought in all. */
const kUntilBytes = Symbol('ron.linger');

interface Lingering extends Socket {
  [kUntilBytes]?: number;
}

function discard(this: Lingering): void {
  if (this.bytesRead > (this[kUntilBytes] ?? Infinity)) this.destroy();
}

/** Call before the last answer is written; takes effect when Node wants to close the socket after it. */
export function lingerOnClose(socket: Socket): void {
  socket.destroySoon = () => startLinger(socket);
}

/** Ends our side, and destroys the socket when the client ends too or has used up its time or bytes. Idempotent. */
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
