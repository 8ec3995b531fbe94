/**
 * The queue between the listener and the workers of a service: requests wait here until one of a few workers is free.
 *
 * Contract: every accepted job is answered exactly once: with the result of its work, `busy` if it was dropped before its
 * work began, `timeout` if its deadline passed, or the reason of its cancellation. It is answered on time, even while it
 * waits. Work that has begun is never dropped; its deadline governs it. A job whose deadline has passed when it is
 * submitted is refused with `timeout`: it counts in `timeout_total`, but was not accepted.
 * Order: the lane of the highest priority that has jobs is served first, lanes of equal priority take turns, and a lane
 * with jobs gets at least one in 16 (`lanes.ts`). Within a lane keys take turns, and the jobs of a key are served in the
 * order of arrival; a lane in standing overload (`work-lane.ts`) serves its newest first and drops those that cannot make
 * their deadline, because in order it would serve only work that is already too late.
 * Bound: `capacity` jobs that wait, over all lanes, besides those that workers took. The reserve of a lane is part of it
 * and no other lane can take it; the rest is shared. One timer serves all deadlines. Operations are O(lanes + keys_max).
 * Overflow: `submit` never waits for room. In a lane with keys, a job of a key that waits with at least two jobs fewer
 * than the longest key displaces the newest job of that one, which is answered with `busy`; every other job is refused
 * with `busy`. So a flood under one key costs other keys nothing, and a key that is alone can use all the room.
 * Cancellation: when a job's deadline is cancelled (the client disconnected) it leaves the queue. A worker whose signal
 * aborts stops waiting; a job that it was already given remains its own. `close()` refuses new jobs and lets workers
 * drain.
 *
 * When its deadline passes during the work, the submitter is answered at once, but the worker stays with the work until
 * it ends: work that ignores its signal must not run beside more work than there are workers.
 *
 *   const lanes = [{ name: 'get', priority: 1, reserve_share: 0.25, key: 'address' }, 'put'];
 *   const queue = new WorkQueue('work', { capacity: 512, lanes });
 *   const bytes = await queue.submit('get', deadline, (scope) => read(path, scope.signal), address);
 *   await queue.serve(task);                          // in each worker
 */
import { Deadline } from '../time/deadline.ts';
import { assert, isRonError, RonError } from '../errors.ts';
import { sched, touch, type Parked } from '../sched.ts';
import { onAbort } from '../sync/on-abort.ts';
import { DeadlineSweep } from './deadline-sweep.ts';
import { QueuedJob, type Job, type Run, type Work } from './work-job.ts';
import { Lanes } from './lanes.ts';
import { ServedQueue } from './served-queue.ts';
import type { Lane, LaneDeclaration } from './work-lane.ts';

export type { Job } from './work-job.ts';
export type { LaneDeclaration, LaneInit } from './work-lane.ts';

export interface WorkQueueInit {
  /** Jobs that may wait, over all lanes. */
  capacity: number;
  /** At least one. */
  lanes: readonly LaneDeclaration[];
  /**
   * The usual budget of a job: its tenth is how long one may wait before the lane counts as late. Default: each job's
   * own, as left when it is submitted. Set it where clients can shorten their budget, so that they cannot cause overload.
   */
  budget_ms?: number;
}

export class WorkQueue extends ServedQueue<Job> {
  readonly capacity: number;
  readonly #lanes: Lanes;
  /** Jobs that workers took and that are not answered yet: the sweep watches their deadlines too. */
  readonly #taken = new Set<QueuedJob>();
  readonly #sweep: DeadlineSweep;
  #running = 0;

  /** Jobs answered with `busy`: refused because there was no room, or dropped. */
  busy_total = 0;
  /** Those of them that were dropped after they had been accepted: in standing overload, or displaced by another key. */
  shed_total = 0;
  /** Jobs answered with `timeout`, before or during their work. */
  timeout_total = 0;
  /** Accepted jobs whose submitter or worker went away before they were done. */
  canceled_total = 0;
  accepted_total = 0;

  constructor(name: string, init: WorkQueueInit) {
    super(name);
    const { capacity, lanes, budget_ms } = init;
    assert(Number.isSafeInteger(capacity) && capacity >= 1, `queue ${name}: capacity is a whole number, at least 1`);
    assert(budget_ms === undefined || budget_ms > 0, `queue ${name}: the budget is positive`);
    this.capacity = capacity;
    this.#lanes = new Lanes(`queue ${name}`, capacity, lanes, budget_ms);
    this.#sweep = new DeadlineSweep(`${name}.deadlines`, (now_ms) => this.#expireJobs(now_ms));
  }

  /** Jobs that wait. */
  get depth(): number {
    touch(this);
    return this.#lanes.depth;
  }

  /** Jobs whose work is going on, also those whose submitter was answered because it took too long. */
  get running(): number {
    touch(this);
    return this.#running;
  }

  /** Whether a lane is in standing overload. */
  get overloaded(): boolean {
    touch(this);
    return this.#lanes.all.some((lane) => lane.overloaded);
  }

  depthOf(lane: string): number {
    touch(this);
    return this.#lanes.named(lane).size;
  }

  /** Jobs of one lane that were answered with `busy`. */
  busyOf(lane: string): number {
    touch(this);
    return this.#lanes.named(lane).busy_total;
  }

  /**
   * Queues `work` and returns its result. Rejects with `busy` (no room, or dropped), `timeout`, `draining` (closed), the
   * reason for which the deadline was cancelled, or the error of the work. `key` counts in lanes that are fair by key.
   */
  submit<R>(lane: string, deadline: Deadline, work: (deadline: Deadline) => Promise<R>, key = ''): Promise<R> {
    touch(this);
    const into = this.#lanes.named(lane);
    if (this.isClosed) return Promise.reject(this.drainingError());
    const remaining_ms = deadline.remaining_ms;
    if (remaining_ms <= 0) return Promise.reject(this.#tooLate(deadline));
    const now_ms = sched.now_ms();
    // [storage I-3] [index I-3] [edge I-3] [interop I-3] [storage I-9] [index I-9] [edge I-9] [interop I-9] A full queue refuses at once; it never grows.
    if (!this.#lanes.hasRoom(into) && !this.#displaceFor(into, key, now_ms)) {
      return Promise.reject(
        this.#busy(into, now_ms, into.isKeyed && into.size > 0 ? 'has no room for this key' : 'is full'),
      );
    }
    const job = new QueuedJob(into, now_ms, remaining_ms, this.#run);
    const answer = sched.park<unknown>(`${this.name}.answer`);
    const open = { deadline, work, answer, unfollow: () => undefined as void };
    job.open = open;
    this.#lanes.enter(job, key);
    this.accepted_total += 1;
    // Last: a displaced job may have ended a deadline above both, and `onOver` answers this job at once then.
    open.unfollow = deadline.onOver((reason) => this.#over(job, reason));
    this.#sweep.by(job.expires_ms, now_ms);
    if (this.workers.size > 0) this.#handOver();
    return answer.promise as Promise<R>;
  }

  /** The next job; `undefined` when the queue is closed and drained. Rejects with the signal's reason. */
  take(signal: AbortSignal): Promise<Job | undefined> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    const job = this.#next();
    if (job !== undefined) return Promise.resolve(job);
    if (this.isClosed) return Promise.resolve(undefined);
    return this.workers.park(signal, undefined);
  }

  /** The next job, if one waits. */
  tryTake(): Job | undefined {
    touch(this);
    return this.#next();
  }

  abortQueued(error: unknown): number {
    touch(this);
    const queued = this.#jobs().filter((job) => !job.begun);
    for (const job of queued) this.#conclude(job)?.fail(error);
    this.canceled_total += queued.length;
    return queued.length;
  }

  protected async serveNext(signal: AbortSignal): Promise<boolean> {
    const job = await this.take(signal);
    await job?.run(signal);
    return job !== undefined;
  }

  protected stopIfDone(): void {
    if (this.isClosed && this.#lanes.depth + this.#taken.size === 0) this.#sweep.stop();
  }

  /** Gives the job that has just come to the worker that has waited longest. */
  #handOver(): void {
    const job = this.#next();
    // None when its deadline passed in this very moment: then it is answered already.
    if (job !== undefined) this.workers.wakeFirst(job);
  }

  /** Takes the next job out. */
  #next(): QueuedJob | undefined {
    const now_ms = sched.now_ms();
    while (this.#lanes.depth > 0) {
      const job = this.#pick(this.#lanes.next, now_ms);
      // Otherwise the lane is empty now: its last jobs were dropped.
      if (job === undefined) continue;
      this.#lanes.take(job);
      this.#taken.add(job);
      return job;
    }
    return undefined;
  }

  /** The job of a lane to serve now, after dropping those that are not worth it. */
  #pick(lane: Lane, now_ms: number): QueuedJob | undefined {
    lane.update(now_ms);
    if (lane.overloaded) this.#shedOldest(lane, now_ms);
    for (;;) {
      const job = lane.peek(lane.overloaded ? 'newest' : 'oldest');
      if (job === undefined) return undefined;
      if (!this.#isLive(job)) continue;
      if (!lane.overloaded || !lane.isHopeless(job, now_ms)) return job;
      this.#shed(job, now_ms);
    }
  }

  /** Whether there is time left. Reading a deadline that is over notifies its listeners, which answers the job. */
  #isLive(job: QueuedJob): boolean {
    if (job.open !== undefined && job.open.deadline.remaining_ms > 0) return true;
    assert(job.open === undefined, 'a job is answered when its deadline is over');
    return false;
  }

  /** The newest are served, so the oldest are the ones that become hopeless: refused now, they can try elsewhere. */
  #shedOldest(lane: Lane, now_ms: number): void {
    for (let job = lane.oldest; job !== undefined && lane.isHopeless(job, now_ms); job = lane.oldest) {
      if (this.#isLive(job)) this.#shed(job, now_ms);
    }
  }

  #shed(job: QueuedJob, now_ms: number, why = 'is overloaded'): void {
    this.shed_total += 1;
    this.#conclude(job)?.fail(this.#busy(job.in, now_ms, why));
  }

  /** Drops the newest job of the longest key in favour of a shorter one. The lane is as long as before then. */
  #displaceFor(lane: Lane, key: string, now_ms: number): boolean {
    const job = lane.displaceable(key);
    if (job === undefined) return false;
    // A job whose deadline is over answers itself here, which makes room as well.
    if (this.#isLive(job)) this.#shed(job, now_ms, 'gives the room to other keys');
    return true;
  }

  /** The deadline of a job is over, by time or because it was cancelled. */
  #over(job: QueuedJob, reason: unknown): void {
    touch(this);
    const answer = this.#conclude(job);
    if (answer === undefined) return;
    if (isRonError(reason, 'timeout')) this.timeout_total += 1;
    else this.canceled_total += 1;
    answer.fail(reason);
  }

  /** Ends the queue's part in a job and returns its answer, which the caller must give. Undefined: already answered. */
  #conclude(job: QueuedJob): Parked<unknown> | undefined {
    const open = job.open;
    if (open === undefined) return undefined;
    job.open = undefined;
    open.unfollow();
    if (!this.#taken.delete(job)) this.#lanes.remove(job);
    this.stopIfDone();
    return open.answer;
  }

  readonly #run: Run = (job, signal) => {
    touch(this);
    const open = job.open;
    if (open === undefined || job.begun || !this.#isLive(job)) return Promise.resolve();
    if (signal?.aborted === true) {
      this.#shed(job, sched.now_ms());
      return Promise.resolve();
    }
    job.begun = true;
    this.#running += 1;
    return this.#work(job, open.work, scopeOf(open.deadline, signal), signal);
  };

  /** Resolves when the work has ended, or the worker must. */
  #work(job: QueuedJob, work: Work, scope: Deadline, signal: AbortSignal | undefined): Promise<void> {
    const began_ms = sched.now_ms();
    const ended = sched.park<void>(`${this.name}.run`);
    const onEnd = (): Parked<unknown> | undefined => {
      touch(this);
      registration?.[Symbol.dispose]();
      if (signal !== undefined) scope[Symbol.dispose]();
      const now_ms = sched.now_ms();
      job.in.sample(now_ms - began_ms, now_ms);
      this.#running -= 1;
      ended.wake();
      return this.#conclude(job);
    };
    const registration =
      signal &&
      onAbort(signal, (reason) => {
        this.#over(job, reason);
        ended.wake();
      });
    start(work, scope).then(
      (value) => onEnd()?.wake(value),
      (error: unknown) => {
        const answer = onEnd();
        if (answer !== undefined && isRonError(error, 'timeout')) this.timeout_total += 1;
        answer?.fail(error);
      },
    );
    return ended.promise;
  }

  #tooLate(deadline: Deadline): unknown {
    if (deadline.expired) this.timeout_total += 1;
    return deadline.signal.reason;
  }

  #busy(lane: Lane, now_ms: number, why: string): RonError {
    this.busy_total += 1;
    lane.busy_total += 1;
    const retry_after_ms = this.#drain_ms(lane, now_ms);
    return new RonError('busy', `queue ${this.name} ${why}`, { op: lane.name, retry_after_ms });
  }

  /** An estimate of the time until the waiting jobs are served; at least the time of one job. */
  #drain_ms(lane: Lane, now_ms: number): number {
    return Math.ceil((lane.service_ms(now_ms) * (this.#lanes.depth + 1)) / Math.max(1, this.#running));
  }

  /** Answers jobs whose deadline is over, by reading it. Returns when the next one expires. */
  #expireJobs(now_ms: number): number {
    touch(this);
    let next_ms = Infinity;
    // A copy: a deadline that is over may end others, and take their jobs out, while we walk.
    for (const job of this.#jobs()) {
      if (job.open === undefined || (job.expires_ms <= now_ms && !this.#isLive(job))) continue;
      next_ms = Math.min(next_ms, job.expires_ms);
    }
    return next_ms;
  }

  /** Every job that is not answered. */
  #jobs(): QueuedJob[] {
    return [...this.#lanes.all.flatMap((lane) => lane.entries()), ...this.#taken];
  }
}

/** The deadline that the work sees: the submitter's, cut short when its worker must end. */
function scopeOf(deadline: Deadline, signal: AbortSignal | undefined): Deadline {
  if (signal === undefined) return deadline;
  return Deadline.unlimited(deadline.op, { parent: deadline, signal });
}

/** So that work which throws before its first await fails like any other. */
async function start(work: Work, deadline: Deadline): Promise<unknown> {
  return work(deadline);
}
