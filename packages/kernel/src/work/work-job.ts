/**
 * A job of a work queue: as its worker sees it, and as the queue and its lanes see it.
 *
 * Contract: a job waits in one lane, or a worker has it, or it was answered. Only the queue answers it.
 */
import type { Deadline } from '../time/deadline.ts';
import { FairEntry } from '../fair/fair-queue.ts';
import type { Parked } from '../sched.ts';
import type { Lane } from './work-lane.ts';

/** A job as its worker sees it. */
export interface Job {
  readonly lane: string;
  /**
   * Does the work and answers the submitter; does nothing if it was answered already. Resolves when the work has ended,
   * or when `signal` aborts (the worker must end): then the submitter is answered without it. Never rejects.
   */
  run(signal?: AbortSignal): Promise<void>;
}

export type Work = (deadline: Deadline) => Promise<unknown>;
export type Run = (job: QueuedJob, signal: AbortSignal | undefined) => Promise<void>;

/** Stands in for the budget of a job without a time limit, so that its lane still detects overload. */
const UNLIMITED_BUDGET_MS = 60_000;

export class QueuedJob extends FairEntry implements Job {
  readonly in: Lane;
  readonly queued_ms: number;
  readonly budget_ms: number;
  readonly expires_ms: number;
  /** Until the job is answered; cleared then, so that a worker that keeps the job keeps nothing else alive. */
  open: { deadline: Deadline; work: Work; answer: Parked<unknown>; unfollow: () => void } | undefined;
  begun = false;
  readonly #run: Run;

  constructor(lane: Lane, now_ms: number, budget_ms: number, run: Run) {
    super(1);
    this.in = lane;
    this.queued_ms = now_ms;
    this.budget_ms = budget_ms === Infinity ? UNLIMITED_BUDGET_MS : budget_ms;
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
