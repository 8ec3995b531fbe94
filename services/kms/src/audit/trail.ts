/**
 * The way of an event into the audit log: a bounded queue, and one appender that writes many with one sync.
 *
 * Promise: events get their places in the order in which they were recorded. In mode `strict` an operation learns the
 * place of its entry only when it is durable, or that there will be none (`degraded_audit`). In mode `continue` it goes
 * on without one when the log does not keep up. Whatever was begun and got no place, in either mode, however it ended, is
 * counted and stands in the log as a gap with its number and times, as soon as the log can be written: so the log may be
 * incomplete, but never says that it is whole when it is not. What is in hand when the trail is closed counts as well, and
 * is refused afterwards (`draining`).
 * Bound: the queue. Overflow: an event waits `WAIT_MS` for room; then `strict` refuses it, `continue` drops the oldest.
 * Cancellation: `record` by its signal while it waits for room. An append that has begun ends as the disk decides.
 */
import {
  Deadline,
  isRonError,
  NEVER,
  orAborted,
  RonError,
  sched,
  sleep,
  touch,
  type Mpsc,
  type Parked,
} from '@ron/kernel';
import { encodeEvent, encodeGap, merged, type AuditEvent, type Gap } from './event.ts';

export type AuditMode = 'strict' | 'continue';

/** What is in the queue. */
export interface Queued {
  readonly event: AuditEvent;
  readonly place: Parked<number | undefined>;
  /** Who waited for room learns a moment later that its event got in: by then it may have left again. */
  state: 'waiting' | 'in' | 'left';
}

/** What the trail needs of a log. */
export interface AppendLog {
  append(entries: readonly Uint8Array[], signal: AbortSignal): Promise<{ readonly first: number }>;
}

export interface AuditTrailInit {
  readonly queue: Mpsc<Queued>;
  /** An entry that stands before all others. Default none. */
  readonly lead?: Uint8Array | undefined;
  readonly log: AppendLog;
  /** Asked for each event: a reload may change it. */
  readonly mode: () => AuditMode;
  /** How long one append may take before the operations of a `continue` log go on without it. */
  readonly appendDeadline: () => Deadline;
  readonly onDropped: (count: number) => void;
  /** After each append: entries that were added. */
  readonly onAppended: (count: number) => void;
  /** The disk or the log refuses; told once each time it begins. */
  readonly onProblem: (error: unknown) => void;
}

/** How long an event waits for room in the queue. */
const WAIT_MS = 200;
/** Between the beginnings of two appends. */
const GATHER_MS = 1;
/** Until a gap that could not be written is tried again, when no event comes before. */
const RETRY_MS = 1000;
/** Events of one append. */
const BATCH_MAX = 512;

export class AuditTrail {
  readonly #init: AuditTrailInit;
  readonly #queue: Mpsc<Queued>;
  /** Without a place since the last gap entry. */
  #gap: Gap | undefined;
  #lead: Uint8Array | undefined;
  /** Operations that were begun and have not said how they ended. */
  #inHand = 0;
  /** Events that were ever put into the queue, and those that have left it. */
  #queued_total = 0;
  #left_total = 0;
  readonly #flushing: { readonly upto: number; readonly parked: Parked<void> }[] = [];
  /** Why the last append failed; undefined since one went well. */
  #problem: string | undefined;

  constructor(init: AuditTrailInit) {
    this.#init = init;
    this.#queue = init.queue;
    this.#lead = init.lead;
  }

  /** Why events do not get into the log at present. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Operations begin, of which events will tell: `record`, `note` or `cancel` follows for each. */
  begin(count = 1): void {
    touch(this);
    if (this.#queue.isClosed) throw closed();
    this.#inHand += count;
  }

  /** It did not happen after all. */
  cancel(): void {
    touch(this);
    this.#inHand -= 1;
  }

  /** The place of the event in the log; undefined when it has none and the operation goes on all the same. */
  record(event: AuditEvent, signal: AbortSignal): Promise<number | undefined> {
    const queued = newQueued(event);
    const sent = this.#queue.trySend(queued);
    if (sent === 'closed') return Promise.reject(closed());
    if (sent === 'full') return this.#wait(queued, signal);
    this.#entered(queued);
    return queued.place.promise;
  }

  /** Records an event whose place nobody waits for. When there is no room the oldest goes at once, or in `strict` it does. */
  note(event: AuditEvent): void {
    const queued = newQueued(event);
    // A place that is refused is refused to nobody.
    queued.place.promise.catch(() => undefined);
    const sent = this.#queue.trySend(queued);
    if (sent === 'ok') this.#entered(queued);
    else if (sent === 'full' && this.#init.mode() === 'strict') this.#withoutPlace(event);
    else if (sent === 'full') this.#push(queued);
  }

  /** Resolves when everything that was put into the queue before is in the log, or was dropped. */
  async flushed(signal: AbortSignal): Promise<void> {
    touch(this);
    signal.throwIfAborted();
    const upto = this.#queued_total;
    if (this.#left_total >= upto) return;
    const parked = sched.park<void>('audit.flushed');
    const waiting = { upto, parked };
    this.#flushing.push(waiting);
    try {
      await orAborted(parked.promise, signal);
    } finally {
      this.#flushing.splice(this.#flushing.indexOf(waiting), 1);
    }
  }

  /** The life of the appender: until `stopping` aborts, or the queue is closed and empty. */
  async run(stopping: AbortSignal): Promise<void> {
    const batch: Queued[] = [];
    let began_ms = -Infinity;
    for (;;) {
      const first = await this.#next(stopping);
      if (first === undefined) return;
      if (first === 'retry') {
        await this.#append([]);
        continue;
      }
      // Under load appends keep a distance, so that each has many events: the calls to the disk cost more than they do.
      const early_ms = began_ms + GATHER_MS - sched.now_ms();
      if (early_ms > 0) await sleep(early_ms, NEVER, 'audit.gather');
      if (this.#queue.depth > 0) await this.#queue.recvMany(BATCH_MAX - 1, NEVER, batch);
      else batch.length = 0;
      began_ms = sched.now_ms();
      await this.#append([first, ...batch]);
    }
  }

  /** Takes no more events and writes those that wait, and how many will have none. For the end, when the appender has stopped. */
  async close(): Promise<void> {
    this.#queue.close();
    await this.run(NEVER);
    // Who was sent away in this moment says so.
    await sched.pause('audit.close');
    const now_ms = sched.wall_ms();
    if (this.#inHand > 0) this.#count({ count: this.#inHand, from: now_ms, to: now_ms });
    if (this.#owes) await this.#append([]);
  }

  /** Whether something is to be written that is no event of anybody. */
  get #owes(): boolean {
    return this.#gap !== undefined || this.#lead !== undefined;
  }

  /** The next event; `retry` when a gap waits and none comes. */
  async #next(stopping: AbortSignal): Promise<Queued | 'retry' | undefined> {
    if (!this.#owes || this.#queue.isClosed) return await this.#queue.recv(stopping);
    using retry = Deadline.after('audit.retry', RETRY_MS, { signal: stopping });
    try {
      return await this.#queue.recv(retry.signal);
    } catch (error) {
      if (stopping.aborted) throw error;
      return 'retry';
    }
  }

  async #wait(queued: Queued, signal: AbortSignal): Promise<number | undefined> {
    const sent = await this.#queue.sendWithin(queued, WAIT_MS, signal).catch((error: unknown) => ({ error }));
    if (sent === 'closed') throw closed();
    if (sent === 'ok') this.#entered(queued);
    else if (this.#init.mode() === 'strict') {
      this.#withoutPlace(queued.event);
      throw sent === 'full' ? noRoom() : sent.error;
    } else this.#push(queued);
    return await queued.place.promise;
  }

  /** Into the queue, at the cost of the oldest. */
  #push(queued: Queued): void {
    const { result, dropped } = this.#queue.pushDropOldest(queued);
    if (result === 'closed') return queued.place.fail(closed());
    this.#entered(queued);
    if (dropped !== undefined) this.#drop([dropped], noRoom());
  }

  /** An event is in the queue: from now on it is not the operation that holds it. */
  #entered(queued: Queued): void {
    touch(this);
    this.#inHand -= 1;
    if (queued.state === 'left') return;
    queued.state = 'in';
    this.#queued_total += 1;
  }

  /** An event that does not get into the queue. */
  #withoutPlace({ time_ms }: AuditEvent): void {
    touch(this);
    this.#inHand -= 1;
    this.#count({ count: 1, from: time_ms, to: time_ms });
  }

  /** Events that leave the queue without a place. */
  #drop(batch: readonly Queued[], why: RonError): void {
    const isStrict = this.#init.mode() === 'strict';
    for (const { event, place } of batch) {
      this.#count({ count: 1, from: event.time_ms, to: event.time_ms });
      if (isStrict) place.fail(why);
      else place.wake(undefined);
    }
    this.#left(batch);
  }

  #left(batch: readonly Queued[]): void {
    touch(this);
    for (const queued of batch) {
      if (queued.state === 'in') this.#left_total += 1;
      queued.state = 'left';
    }
    for (const { upto, parked } of this.#flushing) if (upto <= this.#left_total) parked.wake();
  }

  #count(gap: Gap): void {
    this.#gap = merged(this.#gap, gap);
    this.#init.onDropped(gap.count);
  }

  /** Writes the gap, if there is one, and a batch after it. */
  async #append(batch: readonly Queued[]): Promise<void> {
    const gap = this.#gap;
    this.#gap = undefined;
    const entries: Uint8Array[] = batch.map(({ event }) => encodeEvent(event));
    if (gap !== undefined) entries.unshift(encodeGap(gap));
    if (this.#lead !== undefined) entries.unshift(this.#lead);
    try {
      const { first } = await this.#appended(entries, batch);
      this.#problem = undefined;
      this.#lead = undefined;
      let at = first + entries.length - batch.length;
      for (const { place } of batch) place.wake(at++);
      this.#left(batch);
    } catch (error) {
      if (gap !== undefined) this.#gap = merged(this.#gap, gap);
      if (this.#problem === undefined) this.#init.onProblem(error);
      this.#problem = isRonError(error) ? error.message : 'the audit log cannot be written';
      this.#drop(batch, new RonError('degraded_audit', this.#problem));
      return;
    }
    this.#init.onAppended(entries.length);
  }

  /** Appends; when that takes too long, a `continue` log lets the operations go on and comes after. */
  async #appended(entries: readonly Uint8Array[], batch: readonly Queued[]): Promise<{ readonly first: number }> {
    using deadline = this.#init.appendDeadline();
    const unfollow = deadline.onOver(() => {
      if (this.#init.mode() === 'continue') for (const { place } of batch) place.wake(undefined);
    });
    // Asking for the signal sets the timer.
    void deadline.signal;
    try {
      return await this.#init.log.append(entries, NEVER);
    } finally {
      unfollow();
    }
  }
}

function newQueued(event: AuditEvent): Queued {
  return { event, place: sched.park<number | undefined>('audit.place'), state: 'waiting' };
}

function noRoom(): RonError {
  return new RonError('degraded_audit', 'the audit log does not keep up, and nothing is done without an entry', {
    retry_after_ms: 1000,
  });
}

const closed = (): RonError => new RonError('draining', 'the audit log is closed');
