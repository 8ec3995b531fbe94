/**
 * Answers simple GETs for bytes in RAM straight from the socket, before the connection has a parser.
 *
 *   socket -> a simple GET for bytes in RAM, and admission has room? -> one write, after all readable sockets were read
 *          -> anything else: Node's parser takes over the connection, including this packet
 *
 * Contract: the same answer as the parsed path gives, under the same limits: admission, readiness, drain, the Host
 * guard, correlation ids, metrics. If it cannot answer at once, it has changed nothing and hands the connection over.
 * Bound: one packet is examined. One answer per connection is in progress, and nothing is read meanwhile. The sweeper
 * cuts an answer that the client does not read, and a connection whose first request does not arrive.
 */
import type { Socket } from 'node:net';
import { assert, sched } from '@ron/kernel';
import type { Admission, ClientAddress } from '@ron/kernel';
import type { Connection, InflightRequest } from '../connection/connection.ts';
import { corrIdFrom } from '../guards/corr-id.ts';
import type { FastEntry, FastPath } from './fast-path.ts';
import type { RequestChecks } from '../guards/request-checks.ts';
import type { IngressConfig } from '../limits.ts';
import { readIntoOneBuffer } from '../connection/node-internals.ts';
import { holdsSeveral, PacketReader } from '../connection/packet-reader.ts';
import type { FairScheduler } from '../connection/fair-scheduler.ts';
import { InflightPermit } from '../guards/inflight-permit.ts';
import { simpleGetBytesMax, parseSimpleGet } from './simple-get.ts';
import type { Sweeper } from '../connection/sweeper.ts';

export interface SocketFastPathInit {
  readonly config: IngressConfig;
  readonly fast: FastPath;
  readonly admission: Admission;
  readonly sweeper: Sweeper;
  readonly scheduler: FairScheduler;
  readonly checks: RequestChecks;
}

/** Attaches Node's parser to a connection. */
export type HandOver = (socket: Socket) => void;

interface PreparedAnswer {
  readonly entry: FastEntry;
  readonly status: 200 | 304;
  readonly head: string;
}

/** Answers that are sent together. With more of them the first would wait longer than a separate write costs. */
const DUE_MAX = 64;

export class SocketFastPath {
  readonly init: SocketFastPathInit;
  readonly #bytes_max: number;
  /** The end of every head. */
  readonly #keep_alive: string;
  /** Answers to requests of this event loop iteration: the first `#due_count`. Two arrays take turns. */
  #due: (UnparsedConnection | undefined)[] = Array.from({ length: DUE_MAX });
  #sent: (UnparsedConnection | undefined)[] = Array.from({ length: DUE_MAX });
  #due_count = 0;
  #date_line = '';
  #date_second = -1;

  constructor(init: SocketFastPathInit) {
    const { header_bytes_max, header_count_max, idle_timeout_ms } = init.config;
    this.init = init;
    this.#bytes_max = simpleGetBytesMax(header_bytes_max, header_count_max);
    this.#keep_alive = `\r\nConnection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(idle_timeout_ms / 1000)}\r\n\r\n`;
  }

  /** Reads a new connection until a packet arrives that it cannot answer. */
  take(connection: Connection, handOver: HandOver): void {
    new UnparsedConnection(this, connection, handOver).open();
  }

  /**
   * Writes an answer after all readable sockets have been read. Waking clients one by one, while the server works on
   * the next request, costs more than the rest of the answer.
   */
  sendSoon(connection: UnparsedConnection): void {
    if (this.#due_count === 0) void sched.pause('plain.send').then(this.#sendDue);
    this.#due[this.#due_count] = connection;
    this.#due_count += 1;
    if (this.#due_count === DUE_MAX) this.#sendDue();
  }

  readonly #sendDue = (): void => {
    const due = this.#due;
    const count = this.#due_count;
    this.#due = this.#sent;
    this.#sent = due;
    this.#due_count = 0;
    for (let i = 0; i < count; i += 1) {
      due[i]!.send();
      due[i] = undefined;
    }
  };

  /** The answer to a packet; undefined if Node's parser has to read it. */
  answerTo(packet: Buffer, connection: Connection): PreparedAnswer | undefined {
    const { admission, fast, checks } = this.init;
    const { ticket } = connection;
    if (packet.length > this.#bytes_max || ticket.probation) return undefined;
    const request = parseSimpleGet(packet.toString('latin1'));
    if (
      request === undefined ||
      !checks.allowsSimpleGet(request.host) ||
      !admission.hasRoom(ticket.address, ticket.caller)
    )
      return undefined;
    const status = request.if_none_match === undefined ? 200 : 304;
    const entry = fast.entryFor(request);
    if (entry === undefined) return undefined;
    const corr_id = corrIdFrom(request.corr_id);
    const head = `${fast.headText(entry, status, request)}${this.#date()}X-Corr-ID: ${corr_id}${this.#keep_alive}`;
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

/** A connection without a parser. As an in-flight request it is the answer that the client has not read yet. */
class UnparsedConnection implements InflightRequest {
  readonly #fast_path: SocketFastPath;
  readonly #connection: Connection;
  readonly #passOn: HandOver;
  /** The address that the permit of the answer counts for. */
  #address: ClientAddress | undefined;
  /** Owns the in-flight permit if the client did not read its answer at once. */
  #permit: InflightPermit | undefined;
  /** Status of the last answer; 0 before the first. */
  #status = 0;
  #start_ms = 0;
  #isAnswering = false;
  #hasEnded = false;
  /** The answer that is not written yet. */
  #due: PreparedAnswer | undefined;
  /** The entry of the last answer. */
  #entry: FastEntry | undefined;
  /** A packet that waits until its address is scheduled. */
  #held: Buffer | undefined;

  constructor(fast_path: SocketFastPath, connection: Connection, handOver: HandOver) {
    this.#fast_path = fast_path;
    this.#connection = connection;
    this.#passOn = handOver;
  }

  open(): void {
    const { socket } = this.#connection;
    readIntoOneBuffer(socket);
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    socket.on('error', onError);
    socket.on('timeout', this.#onTimeout);
  }

  readonly #onData = (packet: Buffer): void => {
    this.send();
    const { share, socket } = this.#connection;
    // The client has not read the previous answer, so nothing more is read: the packet is emitted again once it has.
    if (this.#isAnswering) return socket.unshift(packet);
    if (this.#held !== undefined) {
      // Before unshift: a flowing stream would emit the packet again at once.
      socket.pause();
      socket.unshift(packet);
      return;
    }
    const { scheduler } = this.#fast_path.init;
    if (scheduler.tryStart(share)) return this.#read(packet);
    this.#held = packet;
    this.#connection.has_unread = true;
    scheduler.defer(share, () => this.#onScheduled());
  };

  #onScheduled(): void {
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

  #answerTo(packet: Buffer): PreparedAnswer | undefined {
    try {
      return this.#fast_path.answerTo(packet, this.#connection);
    } catch {
      // A defect in a cache or an entry: the parsed path encounters it too and reports it.
      return undefined;
    }
  }

  #begin(answer: PreparedAnswer): void {
    const { admission, config, sweeper } = this.#fast_path.init;
    const { address, caller } = this.#connection.ticket;
    const entered = admission.tryEnter(address, caller);
    assert(entered === 'ok', 'admission had room');
    this.#address = address;
    sweeper.headComplete(this.#connection);
    this.#start_ms = sched.now_ms();
    this.#connection.active_ms = this.#start_ms;
    if (this.#status === 0) this.#connection.socket.setTimeout(config.idle_timeout_ms);
    this.#status = answer.status;
    this.#isAnswering = true;
    this.#connection.add(this);
    this.#due = answer;
    this.#entry = answer.entry;
    this.#fast_path.sendSoon(this);
  }

  /** Writes the pending answer, if any. */
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
    // Usually the kernel accepts all of it at once.
    if (socket.writableLength === 0) return this.#finish(status);
    this.#permit = new InflightPermit(this.#fast_path.init.admission, this.#address, true);
    this.#fast_path.init.sweeper.watch(this.#connection);
    // [storage I-2] One answer is written at a time: the next request is not read before it is out.
    socket.pause();
    socket.write('', (error) => this.#finish(error ? 0 : status));
  }

  /** The answer was sent, or never will be (`status` 0). */
  #finish(status: number): void {
    if (!this.#isAnswering) return;
    this.#isAnswering = false;
    this.#due = undefined;
    const { admission, fast } = this.#fast_path.init;
    const { socket } = this.#connection;
    if (this.#permit === undefined) admission.leave(this.#address);
    else this.#permit.end();
    this.#permit = undefined;
    if (status !== 0) fast.served(this.#entry!);
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
    if (holdsSeveral(packet)) PacketReader.takeOver(this.#connection, this.#fast_path.init.scheduler).feed(packet);
    else socket.emit('data', packet);
    // The parser was not attached when the event occurred.
    if (this.#hasEnded) socket.emit('end');
  }

  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    if (!this.#isAnswering && this.#held === undefined) this.#connection.socket.end();
  };

  readonly #onTimeout = (): void => {
    const { socket } = this.#connection;
    // The sweeper cuts a client that does not read its answer.
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
    if (isStalled) this.#permit?.stall();
    else this.#permit?.unstall();
  }

  readStalled(): void {}
}

function onError(this: Socket): void {
  this.destroy();
}
