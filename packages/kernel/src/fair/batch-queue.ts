/**
 * A queue whose workers take many small jobs at a time, fair by key: for a backend that does a batch faster than its parts.
 *
 * Contract: every accepted job is answered exactly once. A job that waits is answered on time: with the reason of its
 * deadline, with `busy` if it was displaced, or with the error of another piece of its request; its work does not begin
 * then. Work that has begun is
 * never dropped: its submitter gets its outcome, even if that comes late. A worker takes jobs in the order of `FairQueue`,
 * up to BATCH_US of cost and `batch_max` jobs, so that no job waits long for the batch before it; jobs that arrive in the
 * same turn of the event loop are batched together.
 * Bound: `capacity` jobs wait, and one key takes at most as many places as it leaves free. The pieces of a request enter
 * together or not at all.
 * Overflow: beyond that, a request displaces the newest requests of the longest keys while these stay at least as long as
 * its own key; they are answered with `busy`. Otherwise it is refused with `busy`, with a time to retry. So is a request that would not be done within its deadline, by the
 * measured speed and the key's share of it; a key without waiting jobs is always let in.
 * Cancellation: by the deadline of a request. When no submitter waits for any job of a batch, its signal aborts. `close`
 * refuses new requests, accepted ones are still served. A worker whose signal aborts leaves its batch to itself.
 *
 * A worker that is woken has one job promised to it, and other workers leave that job alone:
 *
 *   submit --> [a: job job][b: job]  promised: 1  --> worker: its promised job, and those promised to no other worker
 *
 *   const queue = new BatchQueue('sign', { capacity: 512, batch_max: 64, keys_max: 256, newBatch: () => new Calls() });
 *   const signature = await queue.submit(tenant, 40, deadline, (calls) => calls.sign(message));
 *   await queue.serve(task);                          // in each worker
 */
import type { Deadline } from '../time/deadline.ts';
import { assert, RonError } from '../errors.ts';
import { sched, touch } from '../sched.ts';
import { onAbort } from '../sync/on-abort.ts';
import { DeadlineSweep } from '../work/deadline-sweep.ts';
import { ServedQueue } from '../work/served-queue.ts';
import { BatchJob, BatchRequest, RunningBatch, type Batch, type Piece } from './batch-job.ts';
import { FairQueue } from './fair-queue.ts';
import { ServiceRate } from './service-rate.ts';

export type { Batch, Piece } from './batch-job.ts';

/** Cost that one worker takes at a time: a few milliseconds, so that the next job does not wait longer. */
const BATCH_US = 2000;
/** Cost that a key may use up in one turn. */
const QUANTUM_US = 400;
/** The part of its time that a request may spend waiting. */
const WAIT_SHARE = 0.7;
const RETRY_MS_MAX = 60_000;
const KEYS_MAX_DEFAULT = 256;

export interface BatchQueueInit<B extends Batch> {
  /** Jobs that may wait. */
  readonly capacity: number;
  /** Jobs that one worker takes at a time. */
  readonly batch_max: number;
  /** Keys that take turns; more keys than that share turns. Default 256. */
  readonly keys_max?: number;
  readonly newBatch: () => B;
}

export class BatchQueue<B extends Batch> extends ServedQueue<true> {
  readonly #init: BatchQueueInit<B>;
  readonly #jobs: FairQueue<BatchJob<B>>;
  readonly #rate = new ServiceRate();
  readonly #sweep: DeadlineSweep;
  /** Jobs that wait for workers which were woken and have not taken theirs. */
  #promised = 0;
  /** Requests answered with `busy`. */
  busy_total = 0;

  constructor(name: string, init: BatchQueueInit<B>) {
    const { capacity, batch_max, keys_max = KEYS_MAX_DEFAULT } = init;
    assert(Number.isSafeInteger(batch_max) && batch_max >= 1, `queue ${name}: batch_max is a whole number, at least 1`);
    super(name);
    this.#init = init;
    this.#jobs = new FairQueue({ capacity, keys_max, quantum: QUANTUM_US });
    this.#sweep = new DeadlineSweep(`${name}.deadlines`, (now_ms) => this.#expireJobs(now_ms));
  }

  get capacity(): number {
    return this.#jobs.capacity;
  }

  /** Jobs that wait. */
  get depth(): number {
    touch(this);
    return this.#jobs.size;
  }

  /** Most pieces that one request may have. */
  get pieces_max(): number {
    return this.#jobs.together_max;
  }

  /** Rejects with `busy`, `draining`, the deadline's reason, or the error of the work. */
  async submit<A>(key: string, cost_us: number, deadline: Deadline, work: (batch: B) => Promise<A>): Promise<A> {
    const [answer] = this.#accept(key, [{ cost_us, work }], deadline);
    return (await answer!) as A;
  }

  /** As `submit`, for a request in several pieces: the result of each, or the failure of the first that failed. */
  async submitAll<A>(key: string, pieces: readonly Piece<B, A>[], deadline: Deadline): Promise<A[]> {
    return (await Promise.all(this.#accept(key, pieces, deadline))) as A[];
  }

  abortQueued(error: unknown): number {
    touch(this);
    const jobs = this.#jobs.entries();
    for (const job of jobs) this.#drop(job, error);
    return jobs.length;
  }

  protected async serveNext(signal: AbortSignal): Promise<boolean> {
    if (!(await this.#promise(signal))) return false;
    // Jobs that arrive in the same turn of the event loop join the batch.
    await sched.pause(`${this.name}.gather`);
    // Even if the worker was aborted meanwhile: other workers do not take the job that was promised to it.
    await this.#serveBatch(this.#take(), signal);
    return true;
  }

  protected stopIfDone(): void {
    if (this.isClosed && this.#jobs.size === 0) this.#sweep.stop();
  }

  #accept(key: string, pieces: readonly Piece<B, unknown>[], deadline: Deadline): Promise<unknown>[] {
    touch(this);
    assert(
      pieces.length >= 1 && pieces.length <= this.pieces_max,
      `queue ${this.name}: 1 to ${this.pieces_max} pieces`,
    );
    if (this.isClosed) throw this.drainingError();
    const remaining_ms = deadline.remaining_ms;
    if (remaining_ms <= 0) throw deadline.signal.reason;
    const cost_us = pieces.reduce((sum, piece) => sum + piece.cost_us, 0);
    this.#requireTime(key, cost_us, remaining_ms);
    if (!this.#jobs.admits(key, pieces.length)) this.#displaceFor(key, pieces.length, cost_us);
    const now_ms = sched.now_ms();
    const request = new BatchRequest<B>(deadline, now_ms + remaining_ms);
    request.jobs = pieces.map((piece) => new BatchJob(request, piece, `${this.name}.answer`));
    request.open = pieces.length;
    for (const job of request.jobs) this.#jobs.push(key, job);
    request.unfollow = deadline.onOver((reason) => this.#over(request, reason));
    this.#sweep.by(request.expires_ms, now_ms);
    while (this.workers.size > 0 && this.#jobs.size > this.#promised) {
      this.#promised += 1;
      this.workers.wakeFirst(true);
    }
    return request.jobs.map(({ answer }) => answer.promise);
  }

  /** Takes out the newest requests of the longest keys in favour of a shorter key; throws `busy` if that cannot be. */
  #displaceFor(key: string, count: number, cost_us: number): void {
    const size = this.#jobs.size;
    const wait_ms = this.#wait_ms(key, cost_us);
    for (let freed = 0; freed < count; freed = size - this.#jobs.size) {
      const job = this.#jobs.displaceable(key, count, count - freed);
      // [kms I-3] [index I-3] [edge I-3] [kms I-9] [index I-9] [edge I-9] A full queue refuses at once; it never grows.
      if (job === undefined) throw this.#busy(key, wait_ms);
      const busy = this.#busy(key, wait_ms);
      for (const piece of job.request.jobs) if (piece.bucket !== undefined) this.#drop(piece, busy);
    }
  }

  /** Waits until a job is promised to the caller. Undefined: the queue is closed, and other workers have the rest. */
  #promise(signal: AbortSignal): Promise<true | undefined> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#jobs.size > this.#promised) {
      this.#promised += 1;
      return Promise.resolve(true);
    }
    return this.isClosed ? Promise.resolve(undefined) : this.workers.park(signal, undefined);
  }

  /** The job that was promised, and as many more as fit. None if it was answered in the meantime. */
  #take(): BatchJob<B>[] {
    touch(this);
    this.#promised -= 1;
    const batch: BatchJob<B>[] = [];
    let cost_us = 0;
    while (cost_us < BATCH_US && batch.length < this.#init.batch_max && this.#jobs.size > this.#promised) {
      const job = this.#jobs.peek()!;
      if (job.request.deadline.remaining_ms <= 0) {
        assert(job.isAnswered, `queue ${this.name}: reading a deadline that is over answers its jobs`);
        continue;
      }
      this.#jobs.take(job);
      batch.push(job);
      cost_us += job.cost;
    }
    this.stopIfDone();
    return batch;
  }

  async #serveBatch(jobs: readonly BatchJob<B>[], signal: AbortSignal): Promise<void> {
    if (jobs.length === 0) return;
    let failures = 0;
    const onFailure = (): void => void (failures += 1);
    try {
      await untilAborted(this.#begin(jobs, onFailure), signal, `${this.name}.batch`);
    } finally {
      touch(this);
      const cost_us = jobs.reduce((sum, { cost }) => sum + cost, 0);
      this.#rate.served(cost_us, failures === 0, this.#jobs.size > 0);
    }
  }

  /** Begins the work of every job. The promises never reject: the outcome is the submitter's. */
  #begin(jobs: readonly BatchJob<B>[], onFailure: () => void): Promise<void>[] {
    const running = new RunningBatch(jobs.length);
    for (const job of jobs) job.running = running;
    try {
      const batch = this.#init.newBatch();
      const working = jobs.map((job) => this.#work(job, batch, onFailure));
      batch.begun(running.signal);
      return working;
    } catch (error) {
      onFailure();
      for (const job of jobs) this.#fail(job, error);
      return [];
    }
  }

  async #work(job: BatchJob<B>, batch: B, onFailure: () => void): Promise<void> {
    try {
      const done = await job.work(batch);
      this.#answered(job);
      job.answer.wake(done);
    } catch (error) {
      onFailure();
      this.#fail(job, error);
    }
  }

  /** The other pieces that wait are answered with the same error, as no submitter needs them. */
  #fail(job: BatchJob<B>, error: unknown): void {
    this.#answered(job);
    for (const other of job.request.jobs) if (other.bucket !== undefined) this.#drop(other, error);
    job.answer.fail(error);
  }

  /** The deadline of a request is over. */
  #over(request: BatchRequest<B>, reason: unknown): void {
    touch(this);
    for (const job of request.jobs) {
      if (job.bucket !== undefined) this.#drop(job, reason);
      else if (!job.isAnswered && !job.isAbandoned) {
        job.isAbandoned = true;
        job.running?.abandon(reason);
      }
    }
  }

  /** Answers a job that waits. */
  #drop(job: BatchJob<B>, error: unknown): void {
    this.#jobs.remove(job);
    this.#answered(job);
    this.stopIfDone();
    job.answer.fail(error);
  }

  /** Before the answer: a deadline that is followed costs more to dispose. */
  #answered(job: BatchJob<B>): void {
    touch(this);
    if (job.isAnswered) return;
    job.isAnswered = true;
    job.request.open -= 1;
    if (job.request.open === 0) job.request.unfollow();
    job.running?.ended(job.isAbandoned);
  }

  #expireJobs(now_ms: number): number {
    touch(this);
    let next_ms = Infinity;
    for (const job of this.#jobs.entries()) {
      const { request } = job;
      if (job.bucket === undefined || (request.expires_ms <= now_ms && request.deadline.remaining_ms <= 0)) continue;
      next_ms = Math.min(next_ms, request.expires_ms);
    }
    return next_ms;
  }

  /** Refuses a request that would not be done in time. A key without waiting jobs is let in. */
  #requireTime(key: string, cost_us: number, remaining_ms: number): void {
    const all_ms = this.#rate.time_ms(this.#jobs.cost + cost_us);
    if (all_ms === undefined || this.#jobs.sizeOf(key) === 0) return;
    const wait_ms_max = remaining_ms * WAIT_SHARE;
    if (all_ms <= wait_ms_max) return;
    const wait_ms = this.#wait_ms(key, cost_us);
    if (wait_ms > wait_ms_max) throw this.#busy(key, wait_ms - wait_ms_max);
  }

  /** How long a key waits for its last job, if it adds this cost. */
  #wait_ms(key: string, cost_us: number): number {
    const before_us = this.#jobs.costBefore(key, cost_us);
    return this.#rate.time_ms(before_us) ?? before_us / 1000;
  }

  #busy(key: string, wait_ms: number): RonError {
    this.busy_total += 1;
    const isAlone = this.#jobs.size === this.#jobs.sizeOf(key);
    const why = isAlone ? `queue ${this.name} is full` : `queue ${this.name} has no room for this key`;
    return new RonError('busy', why, { op: this.name, retry_after_ms: Math.min(RETRY_MS_MAX, Math.ceil(wait_ms)) });
  }
}

/** Waits for all of them. A worker that is aborted leaves them to themselves: they answer their submitters. */
function untilAborted(working: readonly Promise<void>[], signal: AbortSignal, label: string): Promise<void> {
  if (signal.aborted) return Promise.reject(signal.reason);
  if (working.length === 0) return Promise.resolve();
  const parked = sched.park<void>(label);
  const registration = onAbort(signal, parked.fail);
  let left = working.length;
  const onEnd = (): void => {
    left -= 1;
    if (left > 0) return;
    registration[Symbol.dispose]();
    parked.wake();
  };
  for (const work of working) work.then(onEnd, onEnd);
  return parked.promise;
}
