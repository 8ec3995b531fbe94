/**
 * The record of one open connection.
 *
 * Contract: the requests in flight on it are known, so that everything they hold is released when the connection closes,
 * even if their response objects never report it. Requests are processed one at a time: those that the client pipelined
 * behind others wait here in their order, hold nothing, and are dropped when the connection closes.
 * Bound: one object per connection, one entry for the request in flight, as many waiting ones as `RequestSequencer` allows, and the
 * packet that its reader holds.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Caller, ClientAddress, RonError } from '@ron/kernel';
import { lingerOnClose, stopParsing } from './linger.ts';
import { stopAfterThisRequest } from './node-internals.ts';
import type { PacketReader } from './packet-reader.ts';
import type { AddressShare } from './fair-scheduler.ts';
import { SendWatch } from './send-watch.ts';
import { TransferWatch } from './transfer-watch.ts';

/** A request in flight, as its connection sees it. */
export interface InflightRequest {
  /** The connection has closed: release everything. Idempotent. */
  connectionLost(): void;
  /** Whether the deadline of an incomplete body has passed. */
  bodyOverdue(now_ms: number): boolean;
  /** Whether a reader waits for body bytes from the client. */
  wantsBytes(): boolean;
  /** The parser failed in the body: refuse the request. False if the body is complete: the error belongs to a later request. */
  bodyBroken(error: RonError): boolean;
  /** Whether the client has stopped reading. While it has, the request counts for its address only. Idempotent. */
  clientStalled(isStalled: boolean): void;
  /** The client stopped sending its body, or exceeded the time for it. */
  readStalled(): void;
}

/** How a connection was counted when it was accepted. */
export interface Ticket {
  readonly ip: string;
  /** When the peer connected, before any TLS handshake. */
  readonly opened_ms: number;
  /** The address that its requests count for; undefined for Unix peers, trusted proxies and services of this node. */
  address: ClientAddress | undefined;
  /** Whether its requests may use the in-flight reserve. */
  caller: Caller;
  /** Counted against the limit of its address; a valid capability lifts that. */
  counted: boolean;
  /** Accepted above the limit of its address, provided that its first request carries a capability. */
  probation: boolean;
}

/** A pipelined request that waits until all earlier answers are sent. */
export interface Waiting {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** The error that broke its body. */
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
  /** The address's share of each event loop iteration. */
  readonly share: AddressShare;
  readonly inflight: InflightRequest[] = [];
  /** In order of arrival. */
  readonly waiting: Waiting[] = [];
  /** Whether its newest request arrived before an earlier one was answered. */
  pipelines = false;
  /** Requests in its last packet that precede the newest one. */
  pipelined = 0;
  /** Whether bytes of its next request have arrived but are not parsed yet. */
  has_unread = false;
  /** Replaces Node's reader once the client has pipelined. */
  reader: PacketReader | undefined = undefined;
  /** Whether the headers of its first request are still incomplete. */
  awaits_head = true;
  /** The newest request that was started, until a sweep finds the connection idle. */
  request: IncomingMessage | undefined = undefined;
  readonly writing = new SendWatch();
  readonly reading = new TransferWatch();
  active_ms: number;
  #closing = false;
  /** Whether a pending answer closes the connection. */
  #has_last_answer = false;

  constructor(socket: Socket, ticket: Ticket, now_ms: number, owner: ConnectionOwner, share: AddressShare) {
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

  /** No request is in flight and nothing is left to send. */
  get idle(): boolean {
    if (this.has_unread || this.inflight.length > 0 || this.waiting.length > 0) return false;
    return this.socket.writableLength === 0;
  }

  /** Whether the client still sends the body of an answered request, which is discarded. */
  get discards(): boolean {
    if (this.request === undefined || this.request.complete || this.socket.writableEnded) return false;
    return this.inflight.length === 0 && this.waiting.length === 0;
  }

  /** Its last answer is being sent: further bytes are not requests. */
  get closing(): boolean {
    return this.#closing;
  }

  /** The current request is read and answered; then the connection closes. */
  lastRequest(): void {
    this.#closing = true;
    stopAfterThisRequest(this.socket);
  }

  /** The connection was refused: further bytes are not requests. */
  refused(): void {
    this.#closing = true;
  }

  /**
   * Answers the earlier requests, then closes. `has_last_answer`: the last of these answers announces the close, so
   * Node closes after it.
   */
  closeAfterInflight(has_last_answer: boolean): void {
    if (has_last_answer) this.#has_last_answer = true;
    if (this.#closing) return;
    this.#closing = true;
    lingerOnClose(this.socket);
    stopParsing(this.socket);
    this.closeIfDone();
  }

  /** Closes the connection if it is closing and every request is answered. */
  closeIfDone(): void {
    if (!this.#closing || this.#has_last_answer) return;
    if (this.inflight.length === 0 && this.waiting.length === 0) this.socket.destroySoon();
  }

  add(request: InflightRequest): void {
    this.inflight.push(request);
  }

  remove(request: InflightRequest): void {
    const { inflight } = this;
    if (inflight.length === 1 && inflight[0] === request) inflight.pop();
    else {
      const index = inflight.indexOf(request);
      if (index >= 0) inflight.splice(index, 1);
    }
    this.closeIfDone();
  }
}
