/**
 * The only module that reads or replaces undocumented parts of Node. `node-internals.test.ts` is the contract: it runs
 * real connections and fails when a version of Node changes one of these parts.
 *
 * Contract: each function names the part that it needs and degrades without it: the connection still works, with the
 * loss that the function states. Never throws, except `takeParserListener` and `takeParserInput`, without which no
 * request would be read.
 *
 *   const attachParser = takeParserListener(server);
 *   server.on('connection', (socket) => attachParser(socket));
 */
import type { Server, ServerResponse } from 'node:http';
import { Server as NetServer } from 'node:net';
import type { Socket } from 'node:net';
import { assert } from '@ron/kernel';

interface StreamHandle {
  readonly bytesWritten?: number;
  readonly writeQueueSize?: number;
  reading?: boolean;
  readStart?(): number;
  useUserBuffer?(buffer: Uint8Array): void;
}

interface Internals {
  readonly _handle?: StreamHandle | null;
  readonly _httpMessage?: ServerResponse | null;
  readonly parser?: { onIncoming?: unknown } | null;
  readonly _parent?: Socket | null;
  readonly _paused?: boolean;
}

/** Returned by a parser callback when the protocol changes: the parser ignores the rest of the packet. */
const NO_MORE_HTTP = 2;

const internalsOf = (socket: Socket): Internals => socket as unknown as Internals;

/**
 * Removes the listener by which an HTTP server attaches its parser to a new connection, and returns it. Over TLS the
 * server's listener of that event begins the handshake instead.
 */
export function takeParserListener(server: Server): (socket: Socket) => void {
  const listeners = server.listeners('connection');
  assert(listeners.length === 1, 'the server has exactly one connection listener');
  server.removeAllListeners('connection');
  const attach = listeners[0] as (this: Server, socket: Socket) => void;
  return (socket) => attach.call(server, socket);
}

/** Stops listening. `http.Server.close` would also cut every connection without a request in flight. */
export function stopListening(server: Server): void {
  if (server.listening) NetServer.prototype.close.call(server);
}

/** Whether the response that now owns the socket has sent its head. Without `_httpMessage`: false. */
export function answerStarted(socket: Socket): boolean {
  // oxlint-disable-next-line no-underscore-dangle -- Node has no public name for it
  return internalsOf(socket)._httpMessage?.headersSent === true;
}

/**
 * Makes the request that is being parsed the last one, even within its packet, which may hold a thousand more requests
 * of several kilobytes of objects each. Without `parser.onIncoming`: the rest of that packet is still parsed.
 */
export function stopAfterThisRequest(socket: Socket): void {
  const { parser } = internalsOf(socket);
  if (typeof parser?.onIncoming === 'function') parser.onIncoming = () => NO_MORE_HTTP;
}

/**
 * Bytes that the kernel has accepted. Node's public counters advance only when a whole write is done, so a slow reader
 * of one large write would appear to make no progress. Without the counters of the handle: the public ones.
 */
export function sentBytes(socket: Socket): number {
  // oxlint-disable-next-line no-underscore-dangle -- Node has no public name for it
  const handle = internalsOf(socket)._handle;
  if (handle?.bytesWritten !== undefined && handle.writeQueueSize !== undefined)
    return handle.bytesWritten - handle.writeQueueSize;
  return socket.bytesWritten - socket.writableLength;
}

/**
 * Forwards the `drain` event of a socket to the response that owns it. Node stops doing so at CONNECT, although
 * earlier answers may still be in progress. Without `_httpMessage`: such an answer stalls, and is cut.
 */
export function keepDrainEvents(socket: Socket): void {
  // oxlint-disable-next-line no-underscore-dangle -- Node has no public name for it
  socket.on('drain', () => internalsOf(socket)._httpMessage?.emit('drain'));
}

/** The TCP or Unix socket under a TLS socket. Without `_parent`: undefined, and connections over TLS are closed. */
export function socketBelow(socket: Socket): Socket | undefined {
  // oxlint-disable-next-line no-underscore-dangle -- Node has no public name for it
  return internalsOf(socket)._parent ?? undefined;
}

/**
 * Closes a connection with a reset, so that the peer reads an error, not the end of the stream. Without the handle of a TCP socket, as
 * on a Unix socket, or without `_parent` of a TLS socket: it is closed.
 */
export function resetConnection(socket: Socket): void {
  // oxlint-disable-next-line no-underscore-dangle -- Node has no public name for it
  const transport = internalsOf(socket)._parent ?? socket;
  try {
    transport.resetAndDestroy();
  } catch {
    // Not a TCP handle.
  }
  socket.destroy();
}

/**
 * Redirects the packets of a socket with a parser to `read`, and returns the function that parses a packet. Adding a
 * listener makes Node detach its native parser from the stream; Node's own listener feeds that parser. If Node has stopped
 * reading because answers wait (`_paused`), it continues when they are out. Without `_handle.readStart`: the connection is not
 * read any more after that, and times out.
 */
export function takeParserInput(socket: Socket, read: (packet: Buffer) => void): (packet: Buffer) => void {
  const [parse] = socket.listeners('data') as ((packet: Buffer) => void)[];
  assert(parse !== undefined, 'a socket with a parser has a listener that feeds it');
  socket.on('data', read);
  socket.off('data', parse);
  if (isHeldBack(socket)) socket.once('resume', () => startReading(socket));
  else socket.resume();
  return parse;
}

/**
 * Whether the HTTP server stopped reading because answers wait for the client (`_paused`). It resumes the socket when they are
 * written; until then its parser must not be fed. Without `_paused`: false.
 */
export function isHeldBack(socket: Socket): boolean {
  // oxlint-disable-next-line no-underscore-dangle -- Node has no public name for it
  return internalsOf(socket)._paused === true;
}

/** The native parser stopped the handle without the stream, so that `resume` alone does not start it. */
function startReading(socket: Socket): void {
  // oxlint-disable-next-line no-underscore-dangle -- Node has no public name for it
  const handle = internalsOf(socket)._handle;
  if (handle?.reading !== false) return;
  handle.reading = true;
  handle.readStart?.();
}

/** Shared by all connections: the bytes of a read are copied before the next read of any connection. */
const read_buffer = Buffer.allocUnsafeSlow(64 * 1024);

/**
 * Reads packets into one buffer of the process, and passes on copies of their size. Node's own way allocates 64 KiB for each read
 * and then shrinks them, which costs more than a small request. While the native parser is attached, it reads with its own buffer.
 * Without `_handle.useUserBuffer`, `kBuffer` and `kBufferCb`: Node's own way.
 */
export function readIntoOneBuffer(socket: Socket): void {
  // oxlint-disable-next-line no-underscore-dangle -- Node has no public name for it
  const handle = internalsOf(socket)._handle;
  const symbols = Object.getOwnPropertySymbols(socket);
  const buffer = symbols.find(({ description }) => description === 'kBuffer');
  const callback = symbols.find(({ description }) => description === 'kBufferCb');
  if (handle?.useUserBuffer === undefined || buffer === undefined || callback === undefined) return;
  const onRead = (bytes: number): boolean => {
    const packet = Buffer.allocUnsafe(bytes);
    read_buffer.copy(packet, 0, 0, bytes);
    return socket.push(packet);
  };
  Object.assign(socket, { [buffer]: read_buffer, [callback]: onRead });
  handle.useUserBuffer(read_buffer);
}

/** Whether an earlier response of the connection still owns the socket: Node assigns it to one response at a time, in order. */
export function waitsForSocket(res: ServerResponse): boolean {
  return res.socket === null;
}

/**
 * Calls `begin` when the response is assigned the socket, that is when the answer before it is sent. Without the
 * `socket` event of responses: never, and the request is dropped with its connection.
 */
export function onSocketAssigned(res: ServerResponse, begin: () => void): void {
  res.once('socket', begin);
}
