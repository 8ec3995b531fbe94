/**
 * What the listener knows about one open connection.
 *
 * Promise: the requests in flight on it are known, so that whatever they hold is given back when the connection dies,
 * whatever becomes of their response objects.
 * Bound: one object per connection, one entry per request in flight.
 */
import type { Socket } from 'node:net';
import type { RonError } from '@ron/kernel';
import { lingerOnClose, stopParsing } from './linger.ts';
import { stopAfterThisRequest } from './node-internals.ts';
import { SendWatch } from './send-watch.ts';
import { TransferWatch } from './transfer-watch.ts';

/** A request in flight, as its connection sees it. */
export interface Flight {
  /** The connection is gone: give everything back. Idempotent. */
  connectionLost(): void;
  /** Whether a body that must be complete by a certain time is not. */
  bodyOverdue(now_ms: number): boolean;
  /** Whether the client owes us body bytes that somebody waits for. */
  wantsBytes(): boolean;
  /** What came is no body: refuse. False when its body is complete, so that it was something else. */
  bodyBroken(error: RonError): boolean;
  /** The client stopped sending its body, or was too late with it. */
  readStalled(): void;
}

/** What a connection was counted as when it was accepted. */
export interface Ticket {
  readonly ip: string;
  /** Counted against the limit of its address; a valid capability lifts that. */
  counted: boolean;
  /** Accepted above the limit of its address, to show a capability in its first request or be refused. */
  probation: boolean;
}

const kConnection = Symbol('ron.connection');

interface Carrier extends Socket {
  [kConnection]?: Connection;
}

export class Connection {
  readonly socket: Socket;
  readonly ticket: Ticket;
  readonly flights: Flight[] = [];
  readonly writing = new SendWatch();
  readonly reading = new TransferWatch();
  active_ms: number;
  #closing = false;

  constructor(socket: Socket, ticket: Ticket, now_ms: number) {
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
    return this.flights.length === 0 && this.socket.writableLength === 0;
  }

  /** Its last answer is on the way: what comes after is no request. */
  get closing(): boolean {
    return this.#closing;
  }

  /** The request at hand is read and answered; then it closes. */
  lastRequest(): void {
    this.#closing = true;
    stopAfterThisRequest(this.socket);
  }

  /** Answers what is in flight, then closes. */
  closeAfterFlights(): void {
    if (this.#closing) return;
    this.#closing = true;
    lingerOnClose(this.socket);
    stopParsing(this.socket);
    if (this.flights.length === 0) this.socket.destroySoon();
  }

  add(flight: Flight): void {
    this.flights.push(flight);
  }

  remove(flight: Flight): void {
    const place = this.flights.indexOf(flight);
    if (place >= 0) this.flights.splice(place, 1);
    if (this.#closing && this.flights.length === 0) this.socket.destroySoon();
  }
}
