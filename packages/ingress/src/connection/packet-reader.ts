/**
 * Reads a connection that pipelines: passes one request at a time to Node's parser, although a packet may hold hundreds.
 *
 * Contract: the parser receives all bytes in order. The bytes behind a request stay unparsed until it is answered and
 * its address is scheduled (`FairScheduler`); until then the socket is not read further. Bodies are passed on at once.
 * The end of a body that spans packets, or is chunked, is not recognised: requests behind it in its last packet are
 * parsed with it, and wait in `RequestSequencer`.
 * While the server holds the socket back because answers wait for the client, no byte is parsed.
 * Bound: one packet, and one more in the socket's own buffer.
 * Cancellation: the bytes are dropped when the connection closes or has had its last request.
 *
 *   const reader = PacketReader.takeOver(connection, scheduler); // replaces Node's own reading
 *   reader.feed(packet);
 */
import type { ServerResponse } from 'node:http';
import type { Connection } from './connection.ts';
import { isHeldBack, takeParserInput } from './node-internals.ts';
import type { FairScheduler } from './fair-scheduler.ts';

const HEAD_END = '\r\n\r\n';
const NEXT_REQUEST = ' HTTP/1.1\r\n';
const CR = 13;
const LF = 10;

export class PacketReader {
  readonly #connection: Connection;
  readonly #scheduler: FairScheduler;
  readonly #parse: (packet: Buffer) => void;
  /** Not parsed yet. */
  #rest: Buffer | undefined;
  /** The newest request, until it has arrived completely. */
  #newest: ServerResponse | undefined;

  private constructor(connection: Connection, scheduler: FairScheduler) {
    this.#connection = connection;
    this.#scheduler = scheduler;
    this.#parse = takeParserInput(connection.socket, this.#onPacket);
  }

  /** The connection must have a parser. Idempotent. */
  static takeOver(connection: Connection, scheduler: FairScheduler): PacketReader {
    return (connection.reader ??= new PacketReader(connection, scheduler));
  }

  /** The parser found a request. */
  arrived(res: ServerResponse): void {
    this.#newest = res;
  }

  readonly #onPacket = (packet: Buffer): void => {
    const connection = this.#connection;
    if (this.#rest !== undefined) {
      // Before unshift: a flowing stream would emit the packet again at once.
      connection.socket.pause();
      connection.socket.unshift(packet);
      return;
    }
    if (this.#newest?.req.complete === false) {
      this.#parse(packet);
      return;
    }
    connection.pipelined = 0;
    if (this.#scheduler.tryStart(connection.share)) return this.feed(packet);
    this.#hold(packet);
    this.#scheduler.defer(connection.share, this.#goOn);
  };

  /** Parses the first request of a packet, and the others once it is answered. */
  feed(packet: Buffer): void {
    const connection = this.#connection;
    this.#newest = undefined;
    let at = headEnd(packet);
    this.#parse(packet.subarray(0, at));
    let newest = this.#newest as ServerResponse | undefined;
    if (newest?.req.complete === false && at < packet.length) {
      // The body is the next packet once the socket is resumed.
      if (isHeldBack(connection.socket)) return connection.socket.unshift(packet.subarray(at));
      const body_end = at + Number(newest.req.headers['content-length']);
      const end = body_end < packet.length ? body_end : packet.length;
      this.#parse(packet.subarray(at, end));
      at = end;
      newest = this.#newest as ServerResponse | undefined;
    }
    if (newest?.req.complete === true) this.#newest = undefined;
    if (connection.closing || connection.socket.destroyed || at >= packet.length) return;
    const rest = packet.subarray(at);
    if (newest === undefined || !newest.req.complete) {
      this.#parse(rest);
      return;
    }
    this.#hold(rest);
    if (newest.closed) this.#answered();
    else newest.once('close', this.#answered);
  }

  #hold(rest: Buffer): void {
    this.#rest = rest;
    this.#connection.has_unread = true;
  }

  readonly #answered = (): void => {
    this.#connection.pipelined += 1;
    this.#scheduler.defer(this.#connection.share, this.#goOn);
  };

  readonly #goOn = (): void => {
    const { socket } = this.#connection;
    const rest = this.#rest;
    this.#rest = undefined;
    this.#connection.has_unread = false;
    if (rest === undefined || socket.destroyed || this.#connection.closing || !socket.writable) return;
    if (isHeldBack(socket)) return socket.unshift(rest);
    if (socket.isPaused()) socket.resume();
    this.feed(rest);
  };
}

/** Whether more than one request begins in a packet. A body that looks like a request counts too, which costs only time. */
export function holdsSeveral(packet: Buffer): boolean {
  const end = headEnd(packet);
  return end < packet.length && packet.indexOf(NEXT_REQUEST, end, 'latin1') >= 0;
}

/** The end of the first head, or of the packet. Empty lines before a request belong to it (RFC 9112, 2.2). */
function headEnd(packet: Buffer): number {
  let start = 0;
  while (packet[start] === CR || packet[start] === LF) start += 1;
  const end = packet.indexOf(HEAD_END, start, 'latin1');
  return end < 0 ? packet.length : end + HEAD_END.length;
}
