/**
 * The queue between the listener and the signers, fair to tenants.
 *
 * Promise: a job that was accepted is answered exactly once: with what its work gave, or why it was not done. Jobs are
 * taken in the order of `FairTurns`, several at a time, so that a signer can hand many messages to the backend at once.
 * One whose deadline is over before its turn is answered and not done.
 * Bound: the channel's capacity, and in it each tenant's share. Overflow: `busy` at once, with a time to come back.
 * Cancellation: by a job's deadline. `close` refuses new jobs; what was accepted is still served.
 *
 * A channel of turns bounds and wakes; which job a turn is for is decided when it is taken:
 *
 *   submit --> [turn turn turn]  work_sign  --> signer: take a turn, then the job that is next in all fairness
 *         `--> FairTurns
 */
import { NEVER, RonError, sched, type Deadline, type Mpsc, type Parked, type TaskContext } from '@ron/kernel';
import { FairTurns } from './fair-turns.ts';

/** A place in the queue; carries nothing. */
export const TURN = Symbol('turn');
export type Turn = typeof TURN;

/** What one round of a signer shares: here, the backend calls of its jobs. */
export interface Round {
  /** Called when every job of the round has begun. */
  begun(): void;
}

interface Job<R extends Round> {
  readonly deadline: Deadline;
  readonly work: (round: R) => Promise<unknown>;
  readonly answer: Parked<unknown>;
}

export interface SignQueueInit<R extends Round> {
  readonly turns: Mpsc<Turn>;
  /** Jobs that one signer takes at a time. */
  readonly batch_max: number;
  readonly newRound: () => R;
}

/** Weight of a new sample in the moving mean of how long a job takes. */
const SAMPLE_WEIGHT = 1 / 8;

export class SignQueue<R extends Round> {
  readonly #turns: Mpsc<Turn>;
  readonly #jobs: FairTurns<Job<R>>;
  readonly #init: SignQueueInit<R>;
  #job_ms = 1;
  /** Requests answered with `busy`. */
  busy_total = 0;

  constructor(init: SignQueueInit<R>) {
    this.#init = init;
    this.#turns = init.turns;
    this.#jobs = new FairTurns(init.turns.capacity);
  }

  get depth(): number {
    return this.#jobs.waiting;
  }

  /** `cost`: signatures that the work makes. Rejects with `busy`, `draining`, the deadline's reason, or as the work does. */
  submit<A>(tenant: string, cost: number, deadline: Deadline, work: (round: R) => Promise<A>): Promise<A> {
    if (this.#turns.isClosed) return Promise.reject(new RonError('draining', 'the service is shutting down'));
    const answer = sched.park<unknown>('work_sign.answer');
    if (!this.#jobs.add(tenant, { deadline, work, answer }, cost)) return Promise.reject(this.#busy(tenant));
    // There are as many turns as jobs, so there is room for this one.
    this.#turns.trySend(TURN);
    return answer.promise as Promise<A>;
  }

  /** The life of one signer. Ends when the queue is closed and drained, or rejects when the task is aborted. */
  async serve({ signal, stopping }: Pick<TaskContext, 'signal' | 'stopping'>): Promise<void> {
    const close = (): void => this.close();
    if (stopping.aborted) close();
    else stopping.addEventListener('abort', close, { once: true });
    const batch_max = Math.max(2, this.#init.batch_max);
    const turns: Turn[] = [];
    try {
      for (;;) {
        if ((await this.#turns.recv(signal)) === undefined) return;
        // What came in the same moment goes with it.
        await sched.pause('work_sign.gather');
        // A turn that was taken has to be used, also by a signer that was told to end in the meantime: its job has no other.
        const more = this.#turns.depth === 0 ? 0 : (await this.#turns.recvMany(batch_max - 1, NEVER, turns)).length;
        await this.#round(1 + more, signal);
      }
    } finally {
      stopping.removeEventListener('abort', close);
    }
  }

  close(): void {
    this.#turns.close();
  }

  /** Answers every job that nobody has taken; gives how many there were. */
  abortQueued(error: unknown): number {
    let count = 0;
    for (let job = this.#jobs.next(); job !== undefined; job = this.#jobs.next(), count++) job.answer.fail(error);
    return count;
  }

  async #round(turns: number, signal: AbortSignal): Promise<void> {
    const began_ms = sched.now_ms();
    const round = this.#init.newRound();
    const working: Promise<void>[] = [];
    for (let turn = 0; turn < turns; turn++) {
      const job = this.#jobs.next();
      if (job !== undefined) working.push(this.#run(job, round));
    }
    round.begun();
    await untilAborted(working, signal);
    this.#job_ms += ((sched.now_ms() - began_ms) / turns - this.#job_ms) * SAMPLE_WEIGHT;
  }

  /** Never rejects: how it went is the submitter's to know. */
  async #run({ deadline, work, answer }: Job<R>, round: R): Promise<void> {
    if (deadline.remaining_ms <= 0) return answer.fail(deadline.signal.reason);
    try {
      answer.wake(await work(round));
    } catch (error) {
      answer.fail(error);
    }
  }

  #busy(tenant: string): RonError {
    this.busy_total += 1;
    const others = this.#jobs.waiting - this.#jobs.waitingOf(tenant);
    const why = others === 0 ? 'the sign queue is full' : 'the share of this tenant in the sign queue is full';
    const retry_after_ms = Math.ceil(this.#job_ms * this.#jobs.waiting);
    return new RonError('busy', why, { op: 'sign', retry_after_ms });
  }
}

/** Waits for all of them; a signer that is aborted leaves them to themselves, they answer their submitters. */
function untilAborted(working: readonly Promise<void>[], signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.reject(signal.reason);
  const parked = sched.park<void>('work_sign.round');
  const onAbort = (): void => parked.fail(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  let left = working.length;
  const onEnd = (): void => {
    left -= 1;
    if (left > 0) return;
    signal.removeEventListener('abort', onAbort);
    parked.wake();
  };
  if (left === 0) {
    left = 1;
    onEnd();
  }
  for (const work of working) work.then(onEnd, onEnd);
  return parked.promise;
}
