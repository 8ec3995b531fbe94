/**
 * Answers plain requests for bytes in RAM straight from the socket, before there is a parser.
 *
 *   socket -> a plain GET for bytes in RAM that admission lets in? -> one write, after the other readable sockets were read
 *          -> anything else: Node's parser gets the connection, this packet included, and keeps it
 *
 * Promise: the same answer as the listener behind it would give, under the same limits: admission, readiness, drain, the
 * Host guard, correlation ids, metrics. When it cannot answer at once it has changed nothing, and hands over.
 * Bound: one packet is examined; one answer is on its way for each connection, and nothing is read meanwhile. An answer
 * that the client does not take is cut by the sweeper, and so is a connection whose first request does not arrive.
 */
import type { Socket } from 'node:net';
import { assert, sched } from '@ron/kernel';
import type { Admission, ClientAddress } from '@ron/kernel';
import type { Connection, Flight } from '../connection/connection.ts';
import { corrIdFrom } from '../guards/corr-id.ts';
import type { FastEntry, FastPath } from './fast-path.ts';
import type { RequestGuards } from '../guards/guards.ts';
import type { IngressConfig } from '../limits.ts';
import { holdsSeveral, PacketReader } from '../connection/packet-reader.ts';
import type { Passes } from '../connection/passes.ts';
import { Place } from '../guards/place.ts';
import { plainBytesMax, plainRequest } from './plain-request.ts';
import type { Sweeper } from '../connection/sweeper.ts';

export interface PlainFrontInit {
  readonly config: IngressConfig;
  readonly fast: FastPath;
  readonly admission: Admission;
  readonly sweeper: Sweeper;
  readonly passes: Passes;
  readonly guards: RequestGuards;
}

/** Gives a connection to Node's parser. */
export type HandOver = (socket: Socket) => void;

interface PlainAnswer {
  readonly entry: FastEntry;
  readonly status: 200 | 304;
  readonly head: string;
}

/** Answers that wait for one another: more would make the first wait for longer than its waking costs. */
const DUE_MAX = 64;

export class PlainFront {
  readonly init: PlainFrontInit;
  readonly #bytes_max: number;
  /** The end of every head. */
  readonly #keep_alive: string;
  /** Answers to requests of this turn of the event loop. */
  #due: PlainConnection[] = [];
  #date_line = '';
  #date_second = -1;

  constructor(init: PlainFrontInit) {
    const { header_bytes_max, header_count_max, idle_timeout_ms } = init.config;
    this.init = init;
    this.#bytes_max = plainBytesMax(header_bytes_max, header_count_max);
    this.#keep_alive = `\r\nConnection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(idle_timeout_ms / 1000)}\r\n\r\n`;
  }

  /** Reads a new connection until a packet arrives that it cannot answer. */
  take(connection: Connection, handOver: HandOver): void {
    new PlainConnection(this, connection, handOver).open();
  }

  /**
   * Has an answer written when all sockets have been read that had something: clients that are woken by their answers one
   * by one, while the server works for the next, cost it more than the rest of the answer.
   */
  sendSoon(connection: PlainConnection): void {
    if (this.#due.length === 0) void sched.pause('plain.send').then(() => this.#sendDue());
    this.#due.push(connection);
    if (this.#due.length >= DUE_MAX) this.#sendDue();
  }

  #sendDue(): void {
    const due = this.#due;
    this.#due = [];
    for (const connection of due) connection.send();
  }

  /** The answer to a packet; undefined when Node's parser has to read it. */
  answerTo(packet: Buffer, connection: Connection): PlainAnswer | undefined {
    const { admission, fast, guards } = this.init;
    const { ticket } = connection;
    if (packet.length > this.#bytes_max || ticket.probation) return undefined;
    const request = plainRequest(packet.toString('latin1'));
    if (request === undefined || !guards.passesPlain(request.host) || !admission.hasRoom(ticket.address, ticket.caller))
      return undefined;
    const status = request.if_none_match === undefined ? 200 : 304;
    const entry = fast.plainEntry(request);
    if (entry === undefined) return undefined;
    const corr_id = corrIdFrom(request.corr_id);
    const head = `${fast.headText(entry, status)}${this.#date()}X-Corr-ID: ${corr_id}${this.#keep_alive}`;
    return { entry, status, head };
  }

  #date(): string {
    const wall_ms = sched.wall_ms();
    const second = Math.floor(wall_ms / 1000);
    if (second !== this.#date_second) {
      this.#date_second = second;
      this.#date_line = `Date: ${new Date(wall_ms).toUTCString()}\r\n`;
    }
    return this.#date_line;
  }
}

/** One connection before it has a parser. As a flight: an answer that the client has not taken yet. */
class PlainConnection implements Flight {
  readonly #front: PlainFront;
  readonly #connection: Connection;
  readonly #passOn: HandOver;
  /** The address that the place of the answer counts for. */
  #address: ClientAddress | undefined;
  /** Owns the in-flight place once the client did not take its answer at once. */
  #place: Place | undefined;
  /** Of the last answer; 0 before the first. */
  #status = 0;
  #start_ms = 0;
  #isAnswering = false;
  #hasEnded = false;
  /** Decided, and not written yet. */
  #due: PlainAnswer | undefined;
  /** A packet that waits for the turn of its address. */
  #held: Buffer | undefined;

  constructor(front: PlainFront, connection: Connection, handOver: HandOver) {
    this.#front = front;
    this.#connection = connection;
    this.#passOn = handOver;
  }

  open(): void {
    const { socket } = this.#connection;
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    socket.on('error', onError);
    socket.on('timeout', this.#onTimeout);
  }

  readonly #onData = (packet: Buffer): void => {
    this.send();
    const { share, socket } = this.#connection;
    // The client has not taken the answer before this one, so nothing more is read: this comes again when it has.
    if (this.#isAnswering) return socket.unshift(packet);
    if (this.#held !== undefined) {
      // First: a stream that flows emits what is put back at once.
      socket.pause();
      socket.unshift(packet);
      return;
    }
    const { passes } = this.#front.init;
    if (passes.tryBegin(share)) return this.#read(packet);
    this.#held = packet;
    this.#connection.has_unread = true;
    passes.later(share, () => this.#onTurn());
  };

  #onTurn(): void {
    const { socket } = this.#connection;
    const packet = this.#held!;
    this.#held = undefined;
    this.#connection.has_unread = false;
    if (socket.destroyed) return;
    if (socket.isPaused()) socket.resume();
    this.#read(packet);
  }

  #read(packet: Buffer): void {
    const answer = this.#connection.closing ? undefined : this.#answerTo(packet);
    if (answer === undefined) this.#handOver(packet);
    else this.#begin(answer);
  }

  #answerTo(packet: Buffer): PlainAnswer | undefined {
    try {
      return this.#front.answerTo(packet, this.#connection);
    } catch {
      // A defect in a cache or an entry: the listener behind meets it too, and tells of it.
      return undefined;
    }
  }

  #begin(answer: PlainAnswer): void {
    const { admission, config, sweeper } = this.#front.init;
    const { address, caller } = this.#connection.ticket;
    const entered = admission.tryEnter(address, caller);
    assert(entered === 'ok', 'there was room');
    this.#address = address;
    sweeper.headComplete(this.#connection);
    this.#start_ms = sched.now_ms();
    this.#connection.active_ms = this.#start_ms;
    if (this.#status === 0) this.#connection.socket.setTimeout(config.idle_timeout_ms);
    this.#status = answer.status;
    this.#isAnswering = true;
    this.#connection.add(this);
    this.#due = answer;
    this.#front.sendSoon(this);
  }

  /** Writes the answer that is due, if any. */
  send(): void {
    if (this.#due === undefined) return;
    const { entry, status, head } = this.#due;
    this.#due = undefined;
    const { socket } = this.#connection;
    if (socket.destroyed) return this.#finish(0);
    if (status === 304) socket.write(head, 'latin1');
    else if (entry.body_text !== undefined) socket.write(head + entry.body_text, 'latin1');
    else {
      socket.cork();
      socket.write(head, 'latin1');
      for (const chunk of entry.source.ram) socket.write(chunk);
      socket.uncork();
    }
    // Mostly the kernel takes it all at once, and nothing is left to wait for.
    if (socket.writableLength === 0) return this.#finish(status);
    this.#place = new Place(this.#front.init.admission, this.#address, true);
    this.#front.init.sweeper.watch(this.#connection);
    // [storage I-2] One answer is written at a time: the next request is not read before it is out.
    socket.pause();
    socket.write('', (error) => this.#finish(error ? 0 : status));
  }

  /** The answer has left, or never will (`status` 0). */
  #finish(status: number): void {
    if (!this.#isAnswering) return;
    this.#isAnswering = false;
    this.#due = undefined;
    const { admission, fast } = this.#front.init;
    const { socket } = this.#connection;
    if (this.#place === undefined) admission.leave(this.#address);
    else this.#place.end();
    this.#place = undefined;
    fast.count(status, (sched.now_ms() - this.#start_ms) / 1000);
    this.#connection.remove(this);
    if (socket.isPaused()) socket.resume();
    if (this.#hasEnded) socket.end();
  }

  /** Hands the connection to Node's parser, together with the last packet. */
  #handOver(packet: Buffer): void {
    const { socket } = this.#connection;
    socket.off('data', this.#onData);
    socket.off('end', this.#onEnd);
    socket.off('error', onError);
    socket.off('timeout', this.#onTimeout);
    socket.setTimeout(0);
    this.#passOn(socket);
    if (holdsSeveral(packet)) PacketReader.takeOver(this.#connection, this.#front.init.passes).feed(packet);
    else socket.emit('data', packet);
    // The parser was not there to see it.
    if (this.#hasEnded) socket.emit('end');
  }

  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    if (!this.#isAnswering && this.#held === undefined) this.#connection.socket.end();
  };

  readonly #onTimeout = (): void => {
    const { socket } = this.#connection;
    // A client that does not take its answer is cut by the sweeper.
    if (!this.#isAnswering) socket.destroy();
  };

  connectionLost(): void {
    this.#finish(0);
  }

  bodyOverdue(): boolean {
    return false;
  }

  wantsBytes(): boolean {
    return false;
  }

  bodyBroken(): boolean {
    return false;
  }

  clientStalled(isStalled: boolean): void {
    if (isStalled) this.#place?.stall();
    else this.#place?.unstall();
  }

  readStalled(): void {}
}

function onError(this: Socket): void {
  this.destroy();
}
