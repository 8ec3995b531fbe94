/**
 * Checks of signatures on their way to the threads, fair to tenants.
 *
 * Promise: some `AT_ONCE_US` of work are with the threads; what comes beyond that waits, and is let in in the order of
 * `FairTurns`. So a tenant that floods makes another wait for a few milliseconds of work, not for all of its own. Each call
 * is answered once: with its results, or why there are none.
 * Bound: `capacity` calls wait, and of them each tenant's share. Overflow: `busy` at once.
 * Cancellation: by the signal of each, looked at when its turn comes: it comes soon. `close` answers those who wait.
 */
import { verifyCost_us, type Check, type CheckThreads } from '@ron/custody';
import { RonError, sched, type Parked } from '@ron/kernel';
import { FairTurns, type Costly } from '../sign/fair-turns.ts';

/** Enough for each thread to find a hop of work ready when it ends one. */
const AT_ONCE_US = 8000;

interface Call extends Costly {
  readonly checks: readonly Check[];
  readonly signal: AbortSignal;
}

interface Waiting extends Call {
  readonly answer: Parked<boolean[]>;
}

export class CheckTurns {
  readonly #threads: Pick<CheckThreads, 'verify'>;
  readonly #turns: FairTurns<Waiting>;
  /** Work that the threads have. */
  #with_threads_us = 0;
  #isClosed = false;
  /** Calls answered with `busy`. */
  busy_total = 0;

  constructor(capacity: number, threads: Pick<CheckThreads, 'verify'>) {
    this.#threads = threads;
    this.#turns = new FairTurns(capacity);
  }

  /** Calls that wait. */
  get depth(): number {
    return this.#turns.waiting;
  }

  /** Whether each is good. Rejects with `busy`, `draining`, the signal's reason, or as the threads do. */
  async verify(tenant: string, checks: readonly Check[], signal: AbortSignal): Promise<boolean[]> {
    signal.throwIfAborted();
    if (this.#isClosed) throw draining();
    const cost_us = checks.reduce((sum, { part, message }) => sum + verifyCost_us(part.alg, message.length), 0);
    // While there is room nobody waits: those who did were let in when it became free.
    if (this.#hasRoom) return await this.#check({ checks, signal, cost_us });
    const answer = sched.park<boolean[]>('verify.turn');
    if (!this.#turns.add(tenant, [{ checks, signal, cost_us, answer }])) {
      this.busy_total += 1;
      throw new RonError('busy', 'the share of this tenant in the queue of checks is full', { op: 'verify' });
    }
    return await answer.promise;
  }

  close(): void {
    this.#isClosed = true;
    for (let next = this.#turns.next(); next !== undefined; next = this.#turns.next()) next.answer.fail(draining());
  }

  get #hasRoom(): boolean {
    return this.#with_threads_us < AT_ONCE_US;
  }

  async #check({ checks, signal, cost_us }: Call): Promise<boolean[]> {
    this.#with_threads_us += cost_us;
    try {
      return await this.#threads.verify(checks, signal);
    } finally {
      this.#with_threads_us -= cost_us;
      this.#letIn();
    }
  }

  #letIn(): void {
    while (this.#hasRoom) {
      const next = this.#turns.next();
      if (next === undefined) return;
      if (next.signal.aborted) next.answer.fail(next.signal.reason);
      else this.#check(next).then(next.answer.wake, next.answer.fail);
    }
  }
}

const draining = (): RonError => new RonError('draining', 'the service is shutting down');
