/**
 * Jobs of a batch queue, the requests that they are pieces of, and the batch that a worker makes of them.
 *
 * Contract: a piece waits, or is in a batch, or was answered. A request is followed once for all of its pieces.
 */
import type { Deadline } from '../time/deadline.ts';
import { RonError } from '../errors.ts';
import { sched, type Parked } from '../sched.ts';
import { FairEntry } from './fair-queue.ts';

/** State that the jobs of one batch share, such as the backend call that does all of their work. */
export interface Batch {
  /** Called when the work of every job in the batch has begun. `signal` aborts when no submitter waits any more. */
  begun(signal: AbortSignal): void;
}

/** A part of a request that is done in one go. */
export interface Piece<B extends Batch, A> {
  /** CPU time in microseconds. */
  readonly cost_us: number;
  readonly work: (batch: B) => Promise<A>;
}

export class BatchJob<B extends Batch> extends FairEntry {
  readonly request: BatchRequest<B>;
  readonly work: (batch: B) => Promise<unknown>;
  readonly answer: Parked<unknown>;
  /** Set when the work begins. */
  running: RunningBatch | undefined = undefined;
  isAnswered = false;
  /** The deadline passed, or the client disconnected, while the work went on. */
  isAbandoned = false;

  constructor(request: BatchRequest<B>, piece: Piece<B, unknown>, label: string) {
    super(piece.cost_us);
    this.request = request;
    this.work = piece.work;
    this.answer = sched.park(label);
  }
}

export class BatchRequest<B extends Batch> {
  readonly deadline: Deadline;
  readonly expires_ms: number;
  jobs: readonly BatchJob<B>[] = [];
  /** Pieces that are not answered. */
  open = 0;
  unfollow: () => void = () => undefined;

  constructor(deadline: Deadline, expires_ms: number) {
    this.deadline = deadline;
    this.expires_ms = expires_ms;
  }
}

/** Counts the jobs of a batch whose work goes on, with a submitter that waits and without. */
export class RunningBatch {
  readonly #controller = new AbortController();
  #waited: number;
  #abandoned = 0;

  constructor(jobs: number) {
    this.#waited = jobs;
  }

  /** Aborts when work goes on and no submitter waits for any of it. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abandon(reason: unknown): void {
    this.#waited -= 1;
    this.#abandoned += 1;
    if (this.#waited === 0) this.#controller.abort(reason);
  }

  ended(wasAbandoned: boolean): void {
    if (wasAbandoned) this.#abandoned -= 1;
    else this.#waited -= 1;
    if (this.#waited > 0 || this.#abandoned === 0 || this.signal.aborted) return;
    this.#controller.abort(new RonError('canceled', 'no submitter waits for the rest of the batch'));
  }
}
