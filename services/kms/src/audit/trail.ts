/**
 * Carries events into the audit log: a bounded queue, and one appender that writes batches with one sync each.
 *
 * Contract: events are appended in the order in which they were recorded. In mode `strict` an operation gets the log index
 * of its entry once it is durable, or `degraded_audit`. In mode `continue` it proceeds without one if the log falls behind.
 * In both modes, every operation that began and got no entry is counted and recorded as a gap, with its count and times, as
 * soon as the log is writable (a damaged log is not until a restart, which forgets the count): the log may be incomplete, but it never claims to be complete when it is not. Operations that
 * are pending when the trail is closed are counted too, and refused afterwards (`draining`). Operations that are only
 * counted (`count`) are written as summaries, at the latest at the close.
 * Bound: the queue. Overflow: an event waits `WAIT_MS` for room; then `strict` refuses it, and `continue` drops the oldest.
 * Cancellation: `record` by its signal while it waits for room. An append that has begun runs to its end.
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
import {
  encodeGap,
  encodeSummary,
  mergeGaps,
  type AuditEvent,
  type Gap,
  type LogEntry,
  type Summary,
} from './event.ts';
import type { Summaries } from './summaries.ts';

export type AuditMode = 'strict' | 'continue';

/** An entry in the queue. */
export interface Queued {
  /** Undefined: only wakes the appender. */
  readonly entry: LogEntry | undefined;
  readonly index: Parked<number | undefined>;
  /** A sender that waited for room learns of its success later; by then its event may already have been settled. */
  state: 'waiting' | 'queued' | 'settled';
}

/** The part of a log that the trail uses. */
export interface AppendLog {
  append(entries: readonly Uint8Array[], signal: AbortSignal): Promise<{ readonly first: number }>;
}

export interface AuditTrailInit {
  readonly queue: Mpsc<Queued>;
  /** An entry to write before all others. Default none. */
  readonly first_entry?: Uint8Array | undefined;
  readonly log: AppendLog;
  /** Operations that are only counted. */
  readonly summaries: Summaries;
  /** How often summaries are written, and whether as one. Default: every second, one per capability and tenant. */
  readonly pace?: () => SummaryPace;
  /** Evaluated per event: a reload may change it. */
  readonly mode: () => AuditMode;
  /** How long an append may take before the operations of a `continue` log proceed without it. */
  readonly appendDeadline: () => Deadline;
  readonly onDropped: (count: number) => void;
  /** Called after each append with the number of entries and their bytes. */
  readonly onAppended: (count: number, bytes: number) => void;
  /** Called once whenever appends start to fail. */
  readonly onProblem: (error: unknown) => void;
}

export interface SummaryPace {
  readonly every_ms: number;
  readonly asOne: boolean;
}

const PACE: SummaryPace = { every_ms: 1000, asOne: false };
/** How long an event waits for room in the queue. */
const WAIT_MS = 200;
/** Minimum time between the starts of two appends. */
const GATHER_MS = 1;
/** Delay before a gap that could not be written is retried without new events. */
const RETRY_MS = 1000;
/** Events per append. */
const BATCH_MAX = 512;

export class AuditTrail {
  readonly #init: AuditTrailInit;
  readonly #queue: Mpsc<Queued>;
  /** Operations without an entry since the last gap entry. */
  #gap: Gap | undefined;
  #first_entry: Uint8Array | undefined;
  /** Operations that began and have not been recorded or cancelled. */
  #pending = 0;
  /** Events that entered the queue, and those that were appended or dropped. */
  #queued_total = 0;
  #settled_total = 0;
  /** When summaries were last written. */
  #summarised_ms = -Infinity;
  readonly #flushing: { readonly upto: number; readonly parked: Parked<void> }[] = [];
  /** Why the last append failed; undefined after a success. */
  #problem: string | undefined;

  constructor(init: AuditTrailInit) {
    this.#init = init;
    this.#queue = init.queue;
    this.#first_entry = init.first_entry;
  }

  /** Why events currently do not reach the log. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Begins operations; `record`, `note` or `cancel` must follow for each. */
  begin(count = 1): void {
    touch(this);
    if (this.#queue.isClosed) throw closed();
    this.#pending += count;
  }

  /** Ends an operation that leaves no entry. */
  cancel(): void {
    touch(this);
    this.#pending -= 1;
  }

  /** Returns the log index of the event; undefined if it has none and the operation may proceed. */
  record(entry: LogEntry, signal: AbortSignal): Promise<number | undefined> {
    const queued = newQueued(entry);
    const sent = this.#queue.trySend(queued);
    if (sent === 'closed') return Promise.reject(closed());
    // [kms I-3] A full queue is waited for within its deadline; the overflow is counted in a gap.
    if (sent === 'full') return this.#wait(queued, signal);
    this.#enqueued(queued);
    return queued.index.promise;
  }

  /** Records an event without waiting. If the queue is full, drops the oldest event, or in `strict` this one. */
  note(entry: LogEntry): void {
    const queued = newQueued(entry);
    // No caller waits for this result.
    queued.index.promise.catch(() => undefined);
    const sent = this.#queue.trySend(queued);
    if (sent === 'ok') this.#enqueued(queued);
    else if (sent === 'full' && this.#init.mode() === 'strict') this.#countLost(entry);
    else if (sent === 'full') this.#push(queued);
  }

  /** Ends an operation that is counted in a summary instead of an entry of its own. */
  count(event: AuditEvent): void {
    const { summaries } = this.#init;
    this.cancel();
    const isFirst = summaries.isEmpty;
    summaries.add(event);
    // A full queue wakes the appender anyway.
    if (isFirst) this.#queue.trySend(newQueued(undefined));
  }

  /** Resolves when every event that is now in the queue was appended or dropped. */
  async flushed(signal: AbortSignal): Promise<void> {
    touch(this);
    signal.throwIfAborted();
    const upto = this.#queued_total;
    if (this.#settled_total >= upto) return;
    const parked = sched.park<void>('audit.flushed');
    const waiting = { upto, parked };
    this.#flushing.push(waiting);
    try {
      await orAborted(parked.promise, signal);
    } finally {
      this.#flushing.splice(this.#flushing.indexOf(waiting), 1);
    }
  }

  /** The appender task: runs until `stopping` aborts, or the queue is closed and empty. */
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
      // Appends are spaced out under load, so that each carries many events: disk calls dominate the cost.
      const early_ms = began_ms + GATHER_MS - sched.now_ms();
      if (early_ms > 0) await sleep(early_ms, NEVER, 'audit.gather');
      if (this.#queue.depth > 0) await this.#queue.recvMany(BATCH_MAX - 1, NEVER, batch);
      else batch.length = 0;
      began_ms = sched.now_ms();
      await this.#append([first, ...batch]);
    }
  }

  /** Refuses new events, writes those that wait and counts pending operations. Call it after the appender has stopped. */
  async close(): Promise<void> {
    this.#queue.close();
    await this.run(NEVER);
    // Callers that are being refused at this moment cancel first.
    await sched.pause('audit.close');
    const now_ms = sched.wall_ms();
    if (this.#pending > 0) this.#count({ count: this.#pending, from: now_ms, to: now_ms });
    this.#summarised_ms = -Infinity;
    if (this.#hasUnwritten) await this.#append([]);
  }

  /** Whether an entry other than an event is to be written. */
  get #hasUnwritten(): boolean {
    return this.#gap !== undefined || this.#first_entry !== undefined || !this.#init.summaries.isEmpty;
  }

  /** The next event; `retry` if a gap or a summary is unwritten and no event arrives. */
  async #next(stopping: AbortSignal): Promise<Queued | 'retry' | undefined> {
    if (!this.#hasUnwritten || this.#queue.isClosed) return await this.#queue.recv(stopping);
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
    if (sent === 'ok') this.#enqueued(queued);
    else if (this.#init.mode() === 'strict') {
      this.#countLost(queued.entry!);
      throw sent === 'full' ? noRoom() : sent.error;
    } else this.#push(queued);
    return await queued.index.promise;
  }

  /** Enqueues an event and drops the oldest if necessary. */
  #push(queued: Queued): void {
    const { result, dropped } = this.#queue.pushDropOldest(queued);
    if (result === 'closed') return queued.index.fail(closed());
    this.#enqueued(queued);
    if (dropped !== undefined) this.#drop([dropped], noRoom());
  }

  /** The event is in the queue, so its operation is no longer pending. */
  #enqueued(queued: Queued): void {
    touch(this);
    this.#pending -= 1;
    if (queued.state === 'settled') return;
    queued.state = 'queued';
    this.#queued_total += 1;
  }

  /** Counts an event that does not enter the queue. */
  #countLost({ time_ms }: LogEntry): void {
    touch(this);
    this.#pending -= 1;
    this.#count({ count: 1, from: time_ms, to: time_ms });
  }

  /** Removes events from the queue without an entry. */
  #drop(batch: readonly Queued[], why: RonError): void {
    const isStrict = this.#init.mode() === 'strict';
    for (const { entry, index } of batch) {
      if (entry === undefined) continue;
      this.#count({ count: 1, from: entry.time_ms, to: entry.time_ms });
      if (isStrict) index.fail(why);
      else index.wake(undefined);
    }
    this.#settled(batch);
  }

  #settled(batch: readonly Queued[]): void {
    touch(this);
    for (const queued of batch) {
      if (queued.state === 'queued') this.#settled_total += 1;
      queued.state = 'settled';
    }
    for (const { upto, parked } of this.#flushing) if (upto <= this.#settled_total) parked.wake();
  }

  #count(gap: Gap): void {
    this.#gap = mergeGaps(this.#gap, gap);
    this.#init.onDropped(gap.count);
  }

  /** Takes the summaries if they are due. */
  #dueSummaries(): Summary[] {
    const { summaries, pace } = this.#init;
    const { every_ms, asOne } = pace?.() ?? PACE;
    const now_ms = sched.now_ms();
    if (summaries.isEmpty || now_ms - this.#summarised_ms < every_ms) return [];
    this.#summarised_ms = now_ms;
    return summaries.take(asOne);
  }

  /** Writes the gap and the summaries, if there are any, followed by a batch. */
  async #append(queued: readonly Queued[]): Promise<void> {
    const batch = queued.filter(({ entry }) => entry !== undefined);
    const gap = this.#gap;
    this.#gap = undefined;
    const summaries = this.#dueSummaries();
    const entries: Uint8Array[] = [...summaries.map(encodeSummary), ...batch.map(({ entry }) => entry!.bytes)];
    if (gap !== undefined) entries.unshift(encodeGap(gap));
    if (this.#first_entry !== undefined) entries.unshift(this.#first_entry);
    if (entries.length === 0) return;
    try {
      const { first } = await this.#appended(entries, batch);
      this.#problem = undefined;
      this.#first_entry = undefined;
      let at = first + entries.length - batch.length;
      for (const { index } of batch) index.wake(at++);
      this.#settled(batch);
    } catch (error) {
      if (gap !== undefined) this.#gap = mergeGaps(this.#gap, gap);
      this.#init.summaries.restore(summaries);
      if (this.#problem === undefined) this.#init.onProblem(error);
      this.#problem = isRonError(error) ? error.message : 'the audit log cannot be written';
      this.#drop(batch, new RonError('degraded_audit', this.#problem, { retry_after_ms: RETRY_MS }));
      return;
    }
    this.#init.onAppended(entries.length, bytesOf(entries));
  }

  /** Appends. If that takes too long, the operations of a `continue` log proceed without waiting for it. */
  async #appended(entries: readonly Uint8Array[], batch: readonly Queued[]): Promise<{ readonly first: number }> {
    using deadline = this.#init.appendDeadline();
    const unfollow = deadline.onOver(() => {
      if (this.#init.mode() === 'continue') for (const { index } of batch) index.wake(undefined);
    });
    // Reading the signal starts the timer.
    void deadline.signal;
    try {
      return await this.#init.log.append(entries, NEVER);
    } finally {
      unfollow();
    }
  }
}

function bytesOf(entries: readonly Uint8Array[]): number {
  return entries.reduce((sum, { length }) => sum + length, 0);
}

function newQueued(entry: LogEntry | undefined): Queued {
  return { entry, index: sched.park<number | undefined>('audit.place'), state: 'waiting' };
}

function noRoom(): RonError {
  return new RonError(
    'degraded_audit',
    'the audit log has fallen behind, and operations without an entry are refused',
    {
      retry_after_ms: 1000,
    },
  );
}

const closed = (): RonError => new RonError('draining', 'the audit log is closed');
