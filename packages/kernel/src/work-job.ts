/**
 * A job of a work queue, and a list of jobs.
 *
 * Promise: a job is in at most one list; it leaves it from anywhere in one step. Only the queue answers it.
 * Bound: the queue's capacity, and as many taken jobs as there are workers. Overflow and cancellation: the queue's.
 */
import type { Deadline } from './deadline.ts';
import { assert } from './errors.ts';
import type { Parked } from './sched.ts';
import type { Lane } from './work-lane.ts';

/** A job in the hands of a worker. */
export interface Job {
  readonly lane: string;
  /**
   * Does the work and answers the submitter; does nothing when that was answered already. Resolves when the work has
   * ended, or when `signal` aborts (the worker must end): then the submitter is answered without it. Never rejects.
   */
  run(signal?: AbortSignal): Promise<void>;
}

export type Work = (deadline: Deadline) => Promise<unknown>;
export type Run = (job: QueuedJob, signal: AbortSignal | undefined) => Promise<void>;

/** A job as the queue and its lanes see it. */
export class QueuedJob implements Job {
  readonly in: Lane;
  readonly queued_ms: number;
  readonly budget_ms: number;
  readonly expires_ms: number;
  /** Until the job is answered; dropped then, so that a worker that holds on to the job keeps nothing else alive. */
  open: { deadline: Deadline; work: Work; answer: Parked<unknown>; unfollow: () => void } | undefined;
  begun = false;
  list: JobList | undefined;
  older: QueuedJob | undefined;
  newer: QueuedJob | undefined;
  readonly #run: Run;

  constructor(lane: Lane, now_ms: number, budget_ms: number, run: Run) {
    this.in = lane;
    this.queued_ms = now_ms;
    this.budget_ms = budget_ms;
    this.expires_ms = now_ms + budget_ms;
    this.#run = run;
  }

  get lane(): string {
    return this.in.name;
  }

  run(signal?: AbortSignal): Promise<void> {
    return this.#run(this, signal);
  }
}

/** A doubly linked list through the jobs themselves, so that a job anywhere in it leaves in one step. */
export class JobList {
  oldest: QueuedJob | undefined;
  newest: QueuedJob | undefined;
  size = 0;

  push(job: QueuedJob): void {
    assert(job.list === undefined, 'a job is in one list at a time');
    job.list = this;
    job.older = this.newest;
    if (this.newest === undefined) this.oldest = job;
    else this.newest.newer = job;
    this.newest = job;
    this.size += 1;
  }

  remove(job: QueuedJob): void {
    assert(job.list === this, 'a job leaves the list it is in');
    const { older, newer } = job;
    if (older === undefined) this.oldest = newer;
    else older.newer = newer;
    if (newer === undefined) this.newest = older;
    else newer.older = older;
    job.list = undefined;
    job.older = undefined;
    job.newer = undefined;
    this.size -= 1;
  }
}
