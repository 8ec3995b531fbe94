/**
 * The way of an event into the audit log: a bounded queue, and one appender that writes many with one sync.
 *
 * Promise: events get their places in the order in which they were recorded. In mode `strict` an operation learns the
 * place of its entry only when it is durable, or that there will be none (`degraded_audit`). In mode `continue` it goes
 * on without one when the log does not keep up; what is dropped had no place yet, is counted, and stands in the log as a
 * gap with its number and times. So the log may be incomplete, but never says that it is whole when it is not.
 * Bound: the queue. Overflow: an event waits `WAIT_MS` for room; then `strict` refuses it, `continue` drops the oldest.
 * Marks of the checkpointer are never dropped.
 * Cancellation: `record` by its signal while it waits for room. An append that has begun ends as the disk decides.
 */
import { isRonError, NEVER, RonError, sched, sleep, type Deadline, type Mpsc, type Parked } from '@ron/kernel';
import { encodeEvent, encodeGap, widened, type AuditEvent, type Gap } from './event.ts';

export type AuditMode = 'strict' | 'continue';

/** What is in the queue: an event, or a mark whose owner wants to know when all before it is in the log. */
export type Queued =
  | { readonly event: AuditEvent; readonly place: Parked<number | undefined> }
  | { readonly event?: undefined; readonly place: Parked<number | undefined> };

/** What the trail needs of a log. */
export interface AppendLog {
  append(entries: readonly Uint8Array[], signal: AbortSignal): Promise<{ readonly first: number }>;
}

export interface AuditTrailInit {
  readonly queue: Mpsc<Queued>;
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
/** Events of one append. */
const BATCH_MAX = 512;
const isMark = (queued: Queued): boolean => queued.event === undefined;

export class AuditTrail {
  readonly #init: AuditTrailInit;
  readonly #queue: Mpsc<Queued>;
  /** Dropped since the last gap entry. */
  #gap: Gap | undefined;
  /** Why the last append failed; undefined since one went well. */
  #problem: string | undefined;

  constructor(init: AuditTrailInit) {
    this.#init = init;
    this.#queue = init.queue;
  }

  /** Why events do not get into the log at present. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** The place of the event in the log; undefined when it has none and the operation goes on all the same. */
  record(event: AuditEvent, signal: AbortSignal): Promise<number | undefined> {
    const place = sched.park<number | undefined>('audit.place');
    const queued: Queued = { event, place };
    const sent = this.#queue.trySend(queued);
    if (sent === 'ok') return place.promise;
    return sent === 'closed' ? this.#tooLate(event) : this.#wait(queued, event, signal);
  }

  /** Records an event whose place nobody waits for. When there is no room the oldest goes at once, or in `strict` it does. */
  note(event: AuditEvent): void {
    const place = sched.park<number | undefined>('audit.place');
    // A place that is refused is refused to nobody.
    place.promise.catch(() => undefined);
    const queued: Queued = { event, place };
    if (this.#queue.trySend(queued) === 'ok') return;
    if (this.#init.mode() === 'strict') return this.#drop(queued);
    const { result, dropped } = this.#queue.pushDropOldest(queued, isMark);
    if (dropped !== undefined) this.#drop(dropped);
    if (result !== 'ok') this.#drop(queued);
  }

  /** Resolves when everything that was recorded before is in the log, or was dropped. */
  async flushed(signal: AbortSignal): Promise<void> {
    const place = sched.park<number | undefined>('audit.flushed');
    const { result, dropped } = this.#queue.pushDropOldest({ place }, isMark);
    if (dropped !== undefined) this.#drop(dropped);
    if (result === 'closed') return;
    if (result === 'full') throw new RonError('degraded_audit', 'marks fill the audit queue');
    const onAbort = (): void => place.fail(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      await place.promise;
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** The life of the appender: until `stopping` aborts, or the queue is closed and empty. */
  async run(stopping: AbortSignal): Promise<void> {
    const batch: Queued[] = [];
    let began_ms = -Infinity;
    for (;;) {
      const first = await this.#queue.recv(stopping);
      if (first === undefined) return;
      // Under load appends keep a distance, so that each has many events: the calls to the disk cost more than they do.
      const early_ms = began_ms + GATHER_MS - sched.now_ms();
      if (early_ms > 0) await sleep(early_ms, NEVER, 'audit.gather');
      if (this.#queue.depth > 0) await this.#queue.recvMany(BATCH_MAX - 1, NEVER, batch);
      else batch.length = 0;
      began_ms = sched.now_ms();
      await this.#append([first, ...batch]);
    }
  }

  /** Takes no more events and writes those that wait. For the end, when the appender has stopped. */
  async close(): Promise<void> {
    this.#queue.close();
    await this.run(NEVER);
    if (this.#gap !== undefined) await this.#append([]);
  }

  async #wait(queued: Queued, event: AuditEvent, signal: AbortSignal): Promise<number | undefined> {
    const sent = await this.#queue.sendWithin(queued, WAIT_MS, signal);
    if (sent === 'ok') return await queued.place.promise;
    if (sent === 'closed') return await this.#tooLate(event);
    if (this.#init.mode() === 'strict') throw noRoom();
    const { result, dropped } = this.#queue.pushDropOldest(queued, isMark);
    if (dropped !== undefined) this.#drop(dropped);
    if (result === 'ok') return await queued.place.promise;
    this.#drop(queued);
    return undefined;
  }

  #tooLate(event: AuditEvent): Promise<undefined> {
    if (this.#init.mode() === 'strict') return Promise.reject(new RonError('draining', 'the audit log is closed'));
    this.#count(event);
    return Promise.resolve(undefined);
  }

  /** An event that leaves the queue without a place. */
  #drop({ event, place }: Queued): void {
    if (event === undefined) return place.wake(undefined);
    this.#count(event);
    if (this.#init.mode() === 'strict') place.fail(noRoom());
    else place.wake(undefined);
  }

  #count(event: AuditEvent): void {
    this.#gap = widened(this.#gap, event);
    this.#init.onDropped(1);
  }

  async #append(batch: readonly Queued[]): Promise<void> {
    const gap = this.#gap;
    const entries: Uint8Array[] = gap === undefined ? [] : [encodeGap(gap)];
    for (const { event } of batch) if (event !== undefined) entries.push(encodeEvent(event));
    try {
      if (entries.length > 0) {
        const { first } = await this.#appended(entries, batch);
        this.#gap = this.#gap === gap ? undefined : without(this.#gap, gap);
        this.#problem = undefined;
        this.#init.onAppended(entries.length);
        this.#place(batch, gap === undefined ? first : first + 1);
      } else this.#place(batch, 0);
    } catch (error) {
      this.#failed(batch, error);
    }
  }

  /** Appends; when that takes too long, a `continue` log lets the operations go on and comes after. */
  async #appended(entries: readonly Uint8Array[], batch: readonly Queued[]): Promise<{ readonly first: number }> {
    using deadline = this.#init.appendDeadline();
    const unfollow = deadline.onOver(() => {
      if (this.#init.mode() === 'continue')
        for (const { event, place } of batch) if (event !== undefined) place.wake(undefined);
    });
    // Asking for the signal sets the timer.
    void deadline.signal;
    try {
      return await this.#init.log.append(entries, NEVER);
    } finally {
      unfollow();
    }
  }

  #place(batch: readonly Queued[], first: number): void {
    let at = first;
    for (const { event, place } of batch) place.wake(event === undefined ? undefined : at++);
  }

  #failed(batch: readonly Queued[], error: unknown): void {
    if (this.#problem === undefined) this.#init.onProblem(error);
    this.#problem = isRonError(error) ? error.message : 'the audit log cannot be written';
    const isStrict = this.#init.mode() === 'strict';
    for (const { event, place } of batch) {
      if (event !== undefined) this.#count(event);
      if (event !== undefined && isStrict) place.fail(new RonError('degraded_audit', this.#problem));
      else place.wake(undefined);
    }
  }
}

function noRoom(): RonError {
  return new RonError('degraded_audit', 'the audit log does not keep up, and nothing is done without an entry', {
    retry_after_ms: 1000,
  });
}

/** What was dropped while the entry for `written` was on its way. */
function without(gap: Gap | undefined, written: Gap | undefined): Gap | undefined {
  if (gap === undefined || written === undefined) return gap;
  return { ...gap, count: gap.count - written.count };
}
