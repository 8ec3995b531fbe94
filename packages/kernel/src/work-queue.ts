/**
 * The queue between the listener and the workers of a service: requests wait here until one of a few workers is free.
 *
 * Promise: every accepted job is answered exactly once: with what its work gave, `busy` if it was dropped before its
 * work began, `timeout` if its deadline passed, or why it was cancelled. It is answered on time, also while it waits.
 * Work that has begun is never dropped; its deadline governs it. The next job comes from each lane that has one in turn,
 * in the order of arrival; a lane in standing overload (`work-lane.ts`) gives its newest first and drops those that can
 * no longer make their deadline, because in order it would serve only work that is already too late.
 * Bound: `capacity` jobs that wait, over all lanes, besides those taken by workers. Each operation is O(1), and one timer
 * serves all deadlines: when it fires the jobs are walked once, at most once per SWEEP_MS_MIN.
 * Overflow: `submit` refuses with `busy` at once; it never waits for room.
 * Cancellation: when a job's deadline is cancelled (the client went away) it leaves the queue. A worker whose signal
 * aborts stops waiting; a job it was already given stays its own. `close()` refuses new jobs and lets workers drain.
 *
 * When its deadline passes during the work, the submitter is answered at once, but the worker stays with the work until
 * that really ends: work that ignores its signal must not add up behind the workers' backs.
 * It is not an Mpsc: that has one order and knows no deadlines, and here a job must leave from anywhere.
 */
import { Deadline } from './deadline.ts';
import { assert, isRonError, RonError } from './errors.ts';
import { sched, touch, type Parked, type Timer } from './sched.ts';
import type { TaskContext } from './supervisor.ts';
import { WaitList } from './wait-list.ts';
import { JobList, QueuedJob, type Job, type Run, type Work } from './work-job.ts';
import { Lane } from './work-lane.ts';

export type { Job } from './work-job.ts';

/** Deadlines are noticed at most this much late; Node's timers are no finer. */
const SWEEP_MS_MIN = 1;

export interface WorkQueueInit {
  /** Jobs that may wait, over all lanes. */
  capacity: number;
  /** The lanes, served in turn. At least one. */
  lanes: readonly string[];
  /**
   * The usual budget of a job: its tenth is how long one may wait before the lane counts as late. Default: each job's
   * own, as left when it is submitted. Set it where clients can shorten their budget, so that they cannot cause overload.
   */
  budget_ms?: number;
}

export class WorkQueue implements AsyncDisposable {
  readonly name: string;
  readonly capacity: number;
  readonly #lanes: readonly Lane[];
  readonly #laneOf: ReadonlyMap<string, Lane>;
  /** Jobs that workers took and that are not answered yet: the sweep watches their deadlines too. */
  readonly #taken = new JobList();
  readonly #workers: WaitList<Job | undefined, undefined>;
  #turn = 0;
  #depth = 0;
  #running = 0;
  #closed = false;
  #sweep: { timer: Timer; at_ms: number } | undefined;

  /** Jobs answered with `busy`: refused because it was full, or shed. */
  busy_total = 0;
  /** Those of them that standing overload dropped after they had been accepted. */
  shed_total = 0;
  /** Jobs answered with `timeout`, before or during their work. */
  timeout_total = 0;
  /** Accepted jobs whose submitter or worker went away before they were done. */
  canceled_total = 0;
  accepted_total = 0;

  constructor(name: string, init: WorkQueueInit) {
    const { capacity, lanes, budget_ms } = init;
    assert(Number.isSafeInteger(capacity) && capacity >= 1, `queue ${name}: capacity is a whole number, at least 1`);
    assert(lanes.length > 0 && new Set(lanes).size === lanes.length, `queue ${name}: lanes are named, each once`);
    assert(budget_ms === undefined || budget_ms > 0, `queue ${name}: the budget is positive`);
    this.name = name;
    this.capacity = capacity;
    this.#lanes = lanes.map((lane) => new Lane(lane, budget_ms));
    this.#laneOf = new Map(this.#lanes.map((lane) => [lane.name, lane]));
    this.#workers = new WaitList({ owner: this, label: `${name}.take` });
  }

  /** Jobs that wait. */
  get depth(): number {
    touch(this);
    return this.#depth;
  }

  /** Jobs whose work is going on, also those whose submitter was answered because it took too long. */
  get running(): number {
    touch(this);
    return this.#running;
  }

  /** Workers that wait for a job. Never while a job waits. */
  get idle(): number {
    touch(this);
    return this.#workers.size;
  }

  /** How long the job that came first has been waiting; 0 when none waits. */
  get oldest_ms(): number {
    touch(this);
    const now_ms = sched.now_ms();
    return this.#lanes.reduce((oldest_ms, lane) => Math.max(oldest_ms, now_ms - (lane.oldest?.queued_ms ?? now_ms)), 0);
  }

  /** Whether a lane is in standing overload. */
  get overloaded(): boolean {
    touch(this);
    return this.#lanes.some((lane) => lane.overloaded);
  }

  depthOf(lane: string): number {
    touch(this);
    return this.#lane(lane).size;
  }

  /** Jobs of one lane that were answered with `busy`. */
  busyOf(lane: string): number {
    touch(this);
    return this.#lane(lane).busy_total;
  }

  /**
   * Queues `work` and gives its result. Rejects with `busy` (full, or shed in overload), `timeout`, `draining` (closed),
   * the reason for which the deadline was cancelled, or whatever the work rejects with.
   */
  submit<R>(lane: string, deadline: Deadline, work: (deadline: Deadline) => Promise<R>): Promise<R> {
    touch(this);
    const into = this.#lane(lane);
    if (this.#closed) return Promise.reject(new RonError('draining', `queue ${this.name} takes no more work`));
    const remaining_ms = deadline.remaining_ms;
    if (remaining_ms <= 0) return Promise.reject(this.#tooLate(deadline));
    const now_ms = sched.now_ms();
    if (this.#depth >= this.capacity) return Promise.reject(this.#busy(into, now_ms, 'is full'));
    const job = new QueuedJob(into, now_ms, remaining_ms, this.#run);
    const answer = sched.park<unknown>(`${this.name}.answer`);
    const unfollow = deadline.onOver((reason) => this.#over(job, reason));
    job.open = { deadline, work, answer, unfollow };
    into.push(job);
    this.#depth += 1;
    this.accepted_total += 1;
    this.#sweepBy(job.expires_ms, now_ms);
    if (this.#workers.size > 0) this.#handOver();
    return answer.promise as Promise<R>;
  }

  /** The next job; `undefined` when the queue is closed and drained. Rejects with the signal's reason. */
  take(signal: AbortSignal): Promise<Job | undefined> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    const job = this.#next();
    if (job !== undefined) return Promise.resolve(job);
    if (this.#closed) return Promise.resolve(undefined);
    return this.#workers.park(signal, undefined);
  }

  /**
   * The life of one worker: runs jobs until the queue is closed and drained, or the task is aborted. When the task is
   * asked to stop the queue closes, so that what was accepted is still served.
   */
  async serve({ signal, stopping }: Pick<TaskContext, 'signal' | 'stopping'>): Promise<void> {
    const close = (): void => this.close();
    if (stopping.aborted) close();
    else stopping.addEventListener('abort', close, { once: true });
    try {
      for (let job = await this.take(signal); job !== undefined; job = await this.take(signal)) await job.run(signal);
    } finally {
      stopping.removeEventListener('abort', close);
    }
  }

  /** Refuses new jobs. Those that wait are still served; a worker that finds none ends. Idempotent. */
  close(): void {
    touch(this);
    if (this.#closed) return;
    this.#closed = true;
    while (this.#workers.size > 0) this.#workers.wakeFirst(undefined);
    this.#workers.close();
    this.#restIfDone();
  }

  /** Answers every job whose work has not begun with `error`; gives how many there were. */
  abortQueued(error: unknown): number {
    touch(this);
    const queued = this.#jobs().filter((job) => !job.begun);
    for (const job of queued) this.#conclude(job)?.fail(error);
    this.canceled_total += queued.length;
    return queued.length;
  }

  /** Closes and sends away whoever still waits. Work in hand goes on. */
  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    this.abortQueued(new RonError('draining', `queue ${this.name} was closed`));
    return Promise.resolve();
  }

  #lane(name: string): Lane {
    const lane = this.#laneOf.get(name);
    assert(lane !== undefined, `queue ${this.name} has a lane ${name}`);
    return lane;
  }

  /** Gives the job that has just come to the worker that has waited longest. */
  #handOver(): void {
    const job = this.#next();
    // None when its deadline passed in this very moment: then it is answered already.
    if (job !== undefined) this.#workers.wakeFirst(job);
  }

  /** Takes the next job out: from each lane that has one in turn. */
  #next(): QueuedJob | undefined {
    const now_ms = sched.now_ms();
    for (let tries = this.#lanes.length; tries > 0 && this.#depth > 0; tries -= 1) {
      const lane = this.#lanes[this.#turn]!;
      this.#turn = (this.#turn + 1) % this.#lanes.length;
      const job = this.#pick(lane, now_ms);
      if (job === undefined) continue;
      this.#leaveLane(job);
      this.#taken.push(job);
      return job;
    }
    return undefined;
  }

  /** The job of a lane to serve now, after dropping those that are not worth it. */
  #pick(lane: Lane, now_ms: number): QueuedJob | undefined {
    lane.look(now_ms);
    if (lane.overloaded) this.#shedOldest(lane, now_ms);
    for (;;) {
      const job = lane.overloaded ? lane.newest : lane.oldest;
      if (job === undefined) return undefined;
      if (!this.#isLive(job)) continue;
      if (!lane.overloaded || !lane.isHopeless(job, now_ms)) return job;
      this.#shed(job, now_ms);
    }
  }

  /** Whether there is time left. Looking at a deadline that is over makes it say so, and that answers the job. */
  #isLive(job: QueuedJob): boolean {
    if (job.open !== undefined && job.open.deadline.remaining_ms > 0) return true;
    assert(job.open === undefined, 'a job is answered when its deadline is over');
    return false;
  }

  /** The newest are served, so it is the oldest that lose hope: told now, they can try elsewhere. */
  #shedOldest(lane: Lane, now_ms: number): void {
    for (let job = lane.oldest; job !== undefined && lane.isHopeless(job, now_ms); job = lane.oldest) {
      if (this.#isLive(job)) this.#shed(job, now_ms);
    }
  }

  #shed(job: QueuedJob, now_ms: number): void {
    this.shed_total += 1;
    this.#conclude(job)?.fail(this.#busy(job.in, now_ms, 'is overloaded'));
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

  /** Ends the queue's part in a job: the one who gets the answer must give it. Undefined: it was given already. */
  #conclude(job: QueuedJob): Parked<unknown> | undefined {
    const open = job.open;
    if (open === undefined) return undefined;
    job.open = undefined;
    open.unfollow();
    if (job.list === this.#taken) this.#taken.remove(job);
    else this.#leaveLane(job);
    this.#restIfDone();
    return open.answer;
  }

  /** While open, the timer is left to fire in vain: cheaper than setting it anew for each job. */
  #restIfDone(): void {
    if (this.#closed && this.#depth + this.#taken.size === 0) this.#stopSweeping();
  }

  #leaveLane(job: QueuedJob): void {
    job.in.remove(job);
    this.#depth -= 1;
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
    const onAbort = (): void => {
      this.#over(job, signal!.reason);
      ended.wake();
    };
    const onEnd = (): Parked<unknown> | undefined => {
      touch(this);
      signal?.removeEventListener('abort', onAbort);
      if (signal !== undefined) scope[Symbol.dispose]();
      const now_ms = sched.now_ms();
      job.in.sample(now_ms - began_ms, now_ms);
      this.#running -= 1;
      ended.wake();
      return this.#conclude(job);
    };
    signal?.addEventListener('abort', onAbort, { once: true });
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

  /** When what waits now will have been served, as far as we can tell; at least the time of one job. */
  #drain_ms(lane: Lane, now_ms: number): number {
    return Math.ceil((lane.service_ms(now_ms) * (this.#depth + 1)) / Math.max(1, this.#running));
  }

  /** Makes sure that the deadlines are looked at no later than `at_ms`. */
  #sweepBy(at_ms: number, now_ms: number): void {
    if (this.#sweep !== undefined && this.#sweep.at_ms <= at_ms) return;
    this.#stopSweeping();
    const delay_ms = Math.max(at_ms - now_ms, SWEEP_MS_MIN);
    const timer = sched.timer(delay_ms, () => this.#sweepNow(), `${this.name}.deadlines`);
    this.#sweep = { timer, at_ms: now_ms + delay_ms };
  }

  #stopSweeping(): void {
    this.#sweep?.timer.cancel();
    this.#sweep = undefined;
  }

  #sweepNow(): void {
    touch(this);
    this.#sweep = undefined;
    const now_ms = sched.now_ms();
    let next_ms = Infinity;
    // A list of its own: a deadline that is over may end others, and take their jobs out, while we walk.
    for (const job of this.#jobs()) {
      if (job.open === undefined || (job.expires_ms <= now_ms && !this.#isLive(job))) continue;
      next_ms = Math.min(next_ms, job.expires_ms);
    }
    if (next_ms < Infinity) this.#sweepBy(next_ms, now_ms);
  }

  /** Every job that is not answered. */
  #jobs(): QueuedJob[] {
    const jobs: QueuedJob[] = [];
    for (const list of [...this.#lanes, this.#taken]) {
      for (let job = list.oldest; job !== undefined; job = job.newer) jobs.push(job);
    }
    return jobs;
  }
}

/** The deadline that the work sees: the submitter's, cut short when its worker must end. */
function scopeOf(deadline: Deadline, signal: AbortSignal | undefined): Deadline {
  if (signal === undefined) return deadline;
  return Deadline.after(deadline.op, deadline.budget_ms, { parent: deadline, signal });
}

/** So that work which throws before its first await fails like any other. */
async function start(work: Work, deadline: Deadline): Promise<unknown> {
  return work(deadline);
}
