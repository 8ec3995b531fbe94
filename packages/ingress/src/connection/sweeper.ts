/**
 * One timer for all connections: cuts stalled and slow transfers, refuses connections whose first request does not
 * arrive, and closes idle connections while draining.
 *
 * Contract: a client that stops sending is cut within its limit plus one period, even if its body is discarded, and one
 * that stops reading within the limit of `SendWatch`, on every route and path. If the headers of the first
 * request are incomplete `header_timeout_ms` after the connect, the connection is refused at most one period later,
 * whichever parser reads it. (For later requests Node's own timeout applies, from their first byte.) While draining, an
 * idle connection is closed after `drain_idle_ms`; one with a request in flight is not closed.
 * Bound: a sweep visits connections with a request in flight and those without a first request, and all connections only
 * while draining. The send queues of quiet clients are measured one batch at a time, for at most a sixth of the time,
 * mostly in the thread pool.
 * Cancellation: `close()` stops it.
 */
import { sched } from '@ron/kernel';
import type { Timer } from '@ron/kernel';
import type { Connection } from './connection.ts';
import { cutConnection } from '../answer/cut-answer.ts';
import { sentBytes } from './node-internals.ts';
import { queuedBytes } from './send-queues.ts';
import { quietAfter_ms } from './send-watch.ts';
import type { TransferLimits } from './transfer-watch.ts';

export interface SweeperInit {
  readonly period_ms: number;
  readonly read: TransferLimits;
  readonly write: TransferLimits;
  readonly drain_idle_ms: number;
  readonly header_timeout_ms: number;
  /** Called when a connection is cut because its client does not read. */
  readonly onWriteCut: (connection: Connection) => void;
  /** Called when a connection is cut because its client is too slow to send a discarded body. */
  readonly onDiscardCut: (connection: Connection) => void;
}

/** Time between two measurements of the send queues, as a multiple of the time that one takes. */
const MEASURE_PAUSE = 5;

export class Sweeper {
  readonly #init: SweeperInit;
  /** Every open connection. */
  readonly all = new Set<Connection>();
  /** Connections with a request in flight or an answer that the client has not read. */
  readonly #busy = new Set<Connection>();
  /** Connections whose first request has not arrived. */
  readonly #newcomers = new Set<Connection>();
  #after: (() => void)[] = [];
  /** Connections whose client has acknowledged nothing for a while. Rebuilt by each sweep. */
  #quiet: Connection[] = [];
  #measuring = false;
  #measure_at_ms = 0;
  readonly #closing = new AbortController();
  #draining = false;
  #timer: Timer | undefined;

  constructor(init: SweeperInit) {
    this.#init = init;
    this.#arm();
  }

  open(connection: Connection): void {
    this.all.add(connection);
    this.#newcomers.add(connection);
  }

  /** The headers of a request are complete. */
  headComplete(connection: Connection): void {
    if (!connection.awaits_head) return;
    connection.awaits_head = false;
    this.#newcomers.delete(connection);
  }

  closed(connection: Connection): void {
    this.all.delete(connection);
    this.#busy.delete(connection);
    this.#newcomers.delete(connection);
  }

  /** Watches a connection with a request in flight, until a sweep finds it idle. */
  watch(connection: Connection): void {
    this.#busy.add(connection);
  }

  beginDrain(): void {
    this.#draining = true;
    this.#timer?.cancel();
    this.#arm();
  }

  /** Calls `then` once, after the next sweep. */
  afterSweep(then: () => void): void {
    this.#after.push(then);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#closing.abort();
  }

  #arm(): void {
    this.#timer = sched.timer(this.#init.period_ms, () => this.#tick(), 'ingress-sweep', {
      // A drain must complete even if nothing else keeps the process alive.
      keepAlive: this.#draining,
    });
  }

  #tick(): void {
    const now_ms = sched.now_ms();
    this.sweep(now_ms);
    const late = this.#lateNewcomers(now_ms);
    if (!this.#draining && late.length === 0) return this.#endTick();
    // After a delay of the event loop, requests may be unread in the kernel: read them before judging.
    void sched.pause('ingress-sweep').then(() => {
      for (const connection of late) if (connection.awaits_head) this.#refuseLate(connection);
      if (this.#draining) this.#closeIdle(sched.now_ms());
      this.#endTick();
    });
  }

  #lateNewcomers(now_ms: number): Connection[] {
    const late: Connection[] = [];
    const due_ms = now_ms - this.#init.header_timeout_ms;
    for (const connection of this.#newcomers) if (connection.ticket.opened_ms <= due_ms) late.push(connection);
    return late;
  }

  #refuseLate(connection: Connection): void {
    this.headComplete(connection);
    connection.owner.headLate(connection);
  }

  #endTick(): void {
    const after = this.#after;
    this.#after = [];
    for (const then of after) then();
    if (this.#timer !== undefined) this.#arm();
  }

  /** Checks every connection that could have stalled. */
  sweep(now_ms: number): void {
    this.#quiet = [];
    for (const connection of this.#busy) {
      if (connection.idle && !connection.discards) {
        connection.request = undefined;
        connection.writing.rest(sentBytes(connection.socket));
        connection.reading.rest();
        this.#busy.delete(connection);
      } else this.#judge(connection, now_ms);
    }
    if (this.#quiet.length > 0 && !this.#measuring && now_ms >= this.#measure_at_ms) void this.#measure(this.#quiet);
  }

  /** Measures how many of the sent bytes the quiet clients have acknowledged. Never rejects. */
  async #measure(quiet: readonly Connection[]): Promise<void> {
    this.#measuring = true;
    const from_ms = sched.now_ms();
    const queued = await queuedBytes(
      quiet.map(({ socket }) => socket),
      this.#closing.signal,
    );
    for (const { socket, writing } of quiet) {
      const queued_bytes = queued.get(socket);
      if (queued_bytes !== undefined) writing.measured(sentBytes(socket), queued_bytes);
    }
    const took_ms = sched.now_ms() - from_ms;
    this.#measure_at_ms = from_ms + Math.max(quietAfter_ms(this.#init.write.stall_ms), took_ms * MEASURE_PAUSE);
    this.#measuring = false;
  }

  #judge(connection: Connection, now_ms: number): void {
    const { socket, writing, reading, inflight } = connection;
    if (socket.writableLength === 0) writing.pause();
    else {
      const verdict = writing.check(now_ms, sentBytes(socket), this.#init.write);
      if (verdict === 'quiet') this.#quiet.push(connection);
      // [storage I-4] [kms I-4] [index I-4] [edge I-4] [interop I-4] A client that does not read is cut; below, one that does not send.
      if (verdict === 'cut') {
        this.#init.onWriteCut(connection);
        cutConnection(socket);
        return;
      }
    }
    inflight[0]?.clientStalled(writing.isStalled);
    // Only the newest request of a connection can still be sending its body.
    const newest = inflight[inflight.length - 1];
    if (newest?.bodyOverdue(now_ms) === true) newest.readStalled();
    const isOwed = newest === undefined ? connection.discards : newest.wantsBytes();
    if (!isOwed) reading.rest();
    else if (reading.check(now_ms, socket.bytesRead, this.#init.read) !== 'ok') {
      reading.rest();
      if (newest !== undefined) return newest.readStalled();
      this.#init.onDiscardCut(connection);
      socket.destroy();
    }
  }

  #closeIdle(now_ms: number): void {
    for (const connection of this.all) {
      if (connection.idle && now_ms - connection.active_ms >= this.#init.drain_idle_ms) connection.socket.destroySoon();
    }
  }
}
