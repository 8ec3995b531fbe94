/**
 * The record of one open connection.
 *
 * Contract: the requests in flight on it are known, so that everything they hold is given back when the connection dies,
 * even if their response objects never report it. Requests are processed one at a time: those that the client pipelined
 * behind others wait here in their order, hold nothing, and are dropped when the connection closes.
 * Bound: one object per connection, one entry for the request in flight, as many waiting ones as `Turns` allows, and the
 * packet that its reader holds.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Caller, ClientAddress, RonError } from '@ron/kernel';
import { lingerOnClose, stopParsing } from './linger.ts';
import { stopAfterThisRequest } from './node-internals.ts';
import type { PacketReader } from './packet-reader.ts';
import type { Share } from './passes.ts';
import { SendWatch } from './send-watch.ts';
import { TransferWatch } from './transfer-watch.ts';

/** A request in flight, as its connection sees it. */
export interface Flight {
  /** The connection is gone: give everything back. Idempotent. */
  connectionLost(): void;
  /** Whether a body that must be complete by a certain time is not. */
  bodyOverdue(now_ms: number): boolean;
  /** Whether a reader waits for body bytes that the client owes. */
  wantsBytes(): boolean;
  /** The parser failed in the body: refuse. False when the body is complete, so that the error is of a later request. */
  bodyBroken(error: RonError): boolean;
  /** Whether the client has stopped reading. While it has, the request counts for its address only. Idempotent. */
  clientStalled(isStalled: boolean): void;
  /** The client stopped sending its body, or was too late with it. */
  readStalled(): void;
}

/** How a connection was counted when it was accepted. */
export interface Ticket {
  readonly ip: string;
  /** When the peer connected, before any TLS handshake. */
  readonly opened_ms: number;
  /** Whose share its requests count for; undefined for Unix peers, trusted proxies and services of this node. */
  address: ClientAddress | undefined;
  /** Whether its requests may use the in-flight reserve. */
  caller: Caller;
  /** Counted against the limit of its address; a valid capability lifts that. */
  counted: boolean;
  /** Accepted above the limit of its address, to show a capability in its first request or be refused. */
  probation: boolean;
}

/** A pipelined request that waits until the answers before it are out. */
export interface Waiting {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** Why its body cannot be read any more. */
  broken: RonError | undefined;
}

/** The listener that accepted a connection. */
export interface ConnectionOwner {
  /** The first request did not arrive in time. */
  headLate(connection: Connection): void;
}

const kConnection = Symbol('ron.connection');

interface Carrier extends Socket {
  [kConnection]?: Connection;
}

export class Connection {
  readonly socket: Socket;
  readonly ticket: Ticket;
  readonly owner: ConnectionOwner;
  /** The part of each pass of the event loop that its address has. */
  readonly share: Share;
  readonly flights: Flight[] = [];
  /** In the order in which they came. */
  readonly waiting: Waiting[] = [];
  /** Whether its newest request came behind another that was not answered yet. */
  pipelines = false;
  /** How many requests of its last packet came before the newest one. */
  pipelined = 0;
  /** Bytes of its next request are here, and not parsed yet. */
  has_unread = false;
  /** Reads it instead of Node, once it has pipelined. */
  reader: PacketReader | undefined = undefined;
  /** Whether the headers of its first request are still incomplete. */
  awaits_head = true;
  /** The newest request that was begun, until a sweep finds the connection idle. */
  request: IncomingMessage | undefined = undefined;
  readonly writing = new SendWatch();
  readonly reading = new TransferWatch();
  active_ms: number;
  #closing = false;
  /** An answer that closes the connection is among those that are due. */
  #has_last_answer = false;

  constructor(socket: Socket, ticket: Ticket, now_ms: number, owner: ConnectionOwner, share: Share) {
    this.share = share;
    this.owner = owner;
    this.socket = socket;
    this.ticket = ticket;
    this.active_ms = now_ms;
    (socket as Carrier)[kConnection] = this;
  }

  /** The record of a socket; undefined when the connection was refused. */
  static of(socket: Socket): Connection | undefined {
    return (socket as Carrier)[kConnection];
  }

  /** No request in flight and nothing left to send. */
  get idle(): boolean {
    if (this.has_unread || this.flights.length > 0 || this.waiting.length > 0) return false;
    return this.socket.writableLength === 0;
  }

  /** Whether the client still sends the body of an answered request, which is discarded. */
  get discards(): boolean {
    if (this.request === undefined || this.request.complete || this.socket.writableEnded) return false;
    return this.flights.length === 0 && this.waiting.length === 0;
  }

  /** Its last answer is on the way: further bytes are not requests. */
  get closing(): boolean {
    return this.#closing;
  }

  /** The request at hand is read and answered; then it closes. */
  lastRequest(): void {
    this.#closing = true;
    stopAfterThisRequest(this.socket);
  }

  /** It was refused as a whole: nothing that comes is a request. */
  refused(): void {
    this.#closing = true;
  }

  /**
   * Answers the requests that came before, then closes. `has_last_answer`: the last of these answers says that it is the
   * last, so Node closes after it.
   */
  closeAfterFlights(has_last_answer: boolean): void {
    if (has_last_answer) this.#has_last_answer = true;
    if (this.#closing) return;
    this.#closing = true;
    lingerOnClose(this.socket);
    stopParsing(this.socket);
    this.closeIfDone();
  }

  /** Closes a connection that should close and has nothing left to answer. */
  closeIfDone(): void {
    if (!this.#closing || this.#has_last_answer) return;
    if (this.flights.length === 0 && this.waiting.length === 0) this.socket.destroySoon();
  }

  add(flight: Flight): void {
    this.flights.push(flight);
  }

  remove(flight: Flight): void {
    const { flights } = this;
    if (flights.length === 1 && flights[0] === flight) flights.pop();
    else {
      const place = flights.indexOf(flight);
      if (place >= 0) flights.splice(place, 1);
    }
    this.closeIfDone();
  }
}
