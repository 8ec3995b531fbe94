/**
 * The queue between the listener and the signers, fair to tenants.
 *
 * Promise: a job that was accepted is answered exactly once: with what its work gave, or why it was not done. Jobs are
 * taken in the order of `FairTurns`, as many at a time as some `TURN_US` of work, so that a signer can hand many messages
 * to the backend at once and still nobody waits long for the next turn. One that nobody waits for any more, because its
 * time is over, its client left or another part of its request failed, is answered and not done.
 * Bound: the channel's capacity, and in it each tenant's share. Overflow: `busy` at once, with a time to come back; so is
 * a request that would not be done in time, by the measured speed and the tenant's share of it.
 * Cancellation: by a job's deadline. `close` refuses new jobs; what was accepted is still served.
 *
 * A channel of turns bounds and wakes; which job a turn is for is decided when it is taken:
 *
 *   submit --> [turn turn turn]  work_sign  --> signer: take a turn, then the job that is next in all fairness
 *         `--> FairTurns
 */
import { RonError, sched, type Deadline, type Mpsc, type Parked, type TaskContext } from '@ron/kernel';
import { FairTurns } from './fair-turns.ts';
import { ServiceRate } from './service-rate.ts';

/** A place in the queue; carries nothing. */
export const TURN = Symbol('turn');
export type Turn = typeof TURN;

/** What one round of a signer shares: here, the backend calls of its jobs. */
export interface Round {
  /** Called when every job of the round has begun. `signal` aborts when nobody waits for any of them. */
  begun(signal: AbortSignal): void;
}

/** A part of a request, done in one go. */
export interface Piece<R extends Round, A> {
  /** CPU time in microseconds, as the algorithms count it. */
  readonly cost_us: number;
  readonly work: (round: R) => Promise<A>;
}

/** What the pieces of a request have in common. */
interface Request {
  readonly deadline: Deadline;
  /** Why one of its pieces failed: then the others are for nobody. */
  failure: { readonly error: unknown } | undefined;
}

interface Job<R extends Round> extends Piece<R, unknown> {
  readonly request: Request;
  readonly answer: Parked<unknown>;
}

export interface SignQueueInit<R extends Round> {
  readonly turns: Mpsc<Turn>;
  /** Jobs that one signer takes at a time. */
  readonly batch_max: number;
  readonly newRound: () => R;
}

/** Work that one signer takes at a time: a few milliseconds, so that whoever comes next does not wait longer. */
const TURN_US = 2000;
/** The part of its time that a request may spend waiting. */
const WAIT_SHARE = 0.7;
const RETRY_MS_MAX = 60_000;

export class SignQueue<R extends Round> {
  readonly #turns: Mpsc<Turn>;
  readonly #jobs: FairTurns<Job<R>>;
  readonly #rate = new ServiceRate();
  readonly #init: SignQueueInit<R>;
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

  /** Most pieces that one request may be. */
  get pieces_max(): number {
    return this.#jobs.together_max;
  }

  /** Rejects with `busy`, `draining`, the deadline's reason, or as the work does. */
  async submit<A>(tenant: string, cost_us: number, deadline: Deadline, work: (round: R) => Promise<A>): Promise<A> {
    const [answer] = this.#accept(tenant, [{ cost_us, work }], deadline);
    return (await answer!) as A;
  }

  /** As `submit`, for a request in several pieces: what each gave, or the failure of the first that failed. */
  async submitAll<A>(tenant: string, pieces: readonly Piece<R, A>[], deadline: Deadline): Promise<A[]> {
    return (await Promise.all(this.#accept(tenant, pieces, deadline))) as A[];
  }

  #accept(tenant: string, pieces: readonly Piece<R, unknown>[], deadline: Deadline): Promise<unknown>[] {
    if (this.#turns.isClosed) throw new RonError('draining', 'the service is shutting down');
    const request: Request = { deadline, failure: undefined };
    const cost_us = pieces.reduce((sum, piece) => sum + piece.cost_us, 0);
    this.#requireTime(tenant, cost_us, deadline);
    const jobs = pieces.map((piece) => ({ ...piece, request, answer: sched.park<unknown>('work_sign.answer') }));
    if (!this.#jobs.add(tenant, jobs)) throw this.#busy(tenant, this.#wait_ms(tenant, cost_us));
    // There are as many turns as jobs, so there is room for these.
    for (let turn = 0; turn < jobs.length; turn++) this.#turns.trySend(TURN);
    return jobs.map(({ answer }) => answer.promise);
  }

  /** The life of one signer. Ends when the queue is closed and drained, or rejects when the task is aborted. */
  async serve({ signal, stopping }: Pick<TaskContext, 'signal' | 'stopping'>): Promise<void> {
    const close = (): void => this.close();
    if (stopping.aborted) close();
    else stopping.addEventListener('abort', close, { once: true });
    try {
      for (;;) {
        if ((await this.#turns.recv(signal)) === undefined) return;
        // What came in the same moment goes with it.
        await sched.pause('work_sign.gather');
        // A turn that was taken has to be used, also by a signer that was told to end in the meantime: its job has no other.
        await this.#round(this.#take(), signal);
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

  /** The jobs of a turn that was received, and of as many more as fit. */
  #take(): Job<R>[] {
    const jobs: Job<R>[] = [];
    for (let us = 0; ;) {
      const job = this.#jobs.next();
      if (job !== undefined && isWanted(job)) {
        us += job.cost_us;
        jobs.push(job);
      }
      if (us >= TURN_US || jobs.length >= this.#init.batch_max || this.#turns.tryRecv() === undefined) return jobs;
    }
  }

  async #round(jobs: readonly Job<R>[], signal: AbortSignal): Promise<void> {
    if (jobs.length === 0) return;
    const round = this.#init.newRound();
    const watch = new Watchers(jobs.length);
    const working = jobs.map((job) => run(job, round, watch));
    round.begun(watch.signal);
    try {
      await untilAborted(working, signal);
    } finally {
      const us = jobs.reduce((sum, { cost_us }) => sum + cost_us, 0);
      const isWhole = jobs.every(({ request }) => request.failure === undefined);
      this.#rate.served(us, isWhole, this.#jobs.waiting > 0);
    }
  }

  /** Refuses what would not be done in time. Who has nothing waiting is always let in: it cannot ask for less. */
  #requireTime(tenant: string, cost_us: number, deadline: Deadline): void {
    const all_ms = this.#rate.time_ms(this.#jobs.work_us + cost_us);
    if (all_ms === undefined || this.#jobs.waitingOf(tenant) === 0) return;
    const patience_ms = deadline.remaining_ms * WAIT_SHARE;
    if (all_ms <= patience_ms) return;
    const wait_ms = this.#wait_ms(tenant, cost_us);
    if (wait_ms > patience_ms) throw this.#busy(tenant, wait_ms - patience_ms);
  }

  /** How long a tenant waits for its last job, if it adds so much. */
  #wait_ms(tenant: string, cost_us: number): number {
    const work_us = this.#jobs.workBefore_us(tenant, cost_us);
    return this.#rate.time_ms(work_us) ?? work_us / 1000;
  }

  #busy(tenant: string, wait_ms: number): RonError {
    this.busy_total += 1;
    const others = this.#jobs.waiting - this.#jobs.waitingOf(tenant);
    const why = others === 0 ? 'the sign queue is full' : 'the share of this tenant in the sign queue is full';
    const retry_after_ms = Math.min(RETRY_MS_MAX, Math.ceil(wait_ms));
    return new RonError('busy', why, { op: 'sign', retry_after_ms });
  }
}

/** Those who wait for the jobs of a round: `signal` aborts when the last of them is gone. */
class Watchers {
  readonly #abandoned = new AbortController();
  #waiting: number;

  constructor(waiting: number) {
    this.#waiting = waiting;
  }

  get signal(): AbortSignal {
    return this.#abandoned.signal;
  }

  readonly onOver = (reason: unknown): void => {
    this.#waiting -= 1;
    if (this.#waiting === 0) this.#abandoned.abort(reason);
  };
}

/** Whether somebody waits for it; if not, it is answered. */
function isWanted({ request: { deadline, failure }, answer }: Job<never>): boolean {
  if (failure !== undefined) answer.fail(failure.error);
  else if (deadline.remaining_ms <= 0) answer.fail(deadline.signal.reason);
  else return true;
  return false;
}

/** Never rejects: how it went is the submitter's to know. */
async function run<R extends Round>({ request, work, answer }: Job<R>, round: R, watch: Watchers): Promise<void> {
  const unfollow = request.deadline.onOver(watch.onOver);
  try {
    const done = await work(round);
    // Before the answer: a deadline that somebody follows is cancelled when it is put away, which costs more.
    unfollow();
    answer.wake(done);
  } catch (error) {
    unfollow();
    request.failure ??= { error };
    answer.fail(error);
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
