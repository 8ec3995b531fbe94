/**
 * Whose turn it is: jobs of many tenants, served so that none waits for another's flood.
 *
 * Promise: tenants that have jobs are served in rounds; in each a tenant may use up `QUANTUM_US` of work, and what it saved
 * for a dearer job is kept (deficit round robin). So over time tenants with work get equal parts of the workers, whatever
 * each of them has queued and whatever its jobs cost. A tenant's own jobs are served in their order.
 * Bound: `capacity` jobs. One tenant holds at most as many as would then still be free: alone half of the queue, two of
 * them a third each. So there is always room for the first job of another. Jobs of one request come in together or not.
 * Overflow: `add` gives false. Cancellation: nothing waits here; a job that is over is skipped by whoever takes it.
 *
 *   round -> [acme: job job job] -> [zoo: job] -> back to acme
 */
import { assert } from '@ron/kernel';

/** Work that a tenant may use up in one round, in microseconds of CPU. */
export const QUANTUM_US = 400;

export interface Costly {
  /** Microseconds of CPU. */
  readonly cost_us: number;
}

interface TenantTurns<T> {
  readonly tenant: string;
  /** From `at` on; what is before was served. */
  jobs: T[];
  at: number;
  /** Of the jobs that wait. */
  work_us: number;
  /** Left over from earlier turns. */
  credit_us: number;
}

export class FairTurns<T extends Costly> {
  readonly capacity: number;
  readonly #tenants = new Map<string, TenantTurns<T>>();
  /** Those with jobs, the one whose turn it is first. */
  readonly #round: TenantTurns<T>[] = [];
  #waiting = 0;
  #work_us = 0;

  constructor(capacity: number) {
    assert(Number.isSafeInteger(capacity) && capacity >= 1, 'capacity is a whole number, at least 1');
    this.capacity = capacity;
  }

  /** Jobs that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  /** What they cost. */
  get work_us(): number {
    return this.#work_us;
  }

  waitingOf(tenant: string): number {
    const turns = this.#tenants.get(tenant);
    return turns === undefined ? 0 : turns.jobs.length - turns.at;
  }

  /** What is served until a tenant's last job is, if it adds `cost_us` now: its own, and as much of each other tenant. */
  workBefore_us(tenant: string, cost_us: number): number {
    const own_us = (this.#tenants.get(tenant)?.work_us ?? 0) + cost_us;
    let sum_us = own_us;
    for (const turns of this.#round) if (turns.tenant !== tenant) sum_us += Math.min(turns.work_us, own_us);
    return sum_us;
  }

  /** Most jobs that one request may be: fewer than a tenant may hold, so that it is never too large for an empty queue. */
  get together_max(): number {
    return Math.max(1, this.capacity >> 2);
  }

  /** False when the tenant holds its share, or nothing is free; then none of them is in. */
  add(tenant: string, jobs: readonly T[]): boolean {
    assert(jobs.length <= this.together_max, 'a request is at most a quarter of the queue');
    const free = this.capacity - this.#waiting;
    if (this.waitingOf(tenant) + 2 * jobs.length > free + 1) return false;
    let turns = this.#tenants.get(tenant);
    if (turns === undefined) {
      turns = { tenant, jobs: [], at: 0, work_us: 0, credit_us: 0 };
      this.#tenants.set(tenant, turns);
      this.#round.push(turns);
    }
    for (const job of jobs) {
      turns.jobs.push(job);
      turns.work_us += job.cost_us;
      this.#work_us += job.cost_us;
    }
    this.#waiting += jobs.length;
    return true;
  }

  /** The next job; undefined when none waits. */
  next(): T | undefined {
    while (this.#round.length > 0) {
      const turns = this.#round[0]!;
      const first = turns.jobs[turns.at];
      assert(first !== undefined, 'a tenant in the round has a job');
      if (turns.credit_us >= first.cost_us) return this.#take(turns, first);
      turns.credit_us += QUANTUM_US;
      // Its credit is for its next turn: now the others have theirs.
      if (this.#round.length > 1) this.#round.push(this.#round.shift()!);
    }
    return undefined;
  }

  #take(turns: TenantTurns<T>, job: T): T {
    turns.credit_us -= job.cost_us;
    turns.work_us -= job.cost_us;
    this.#work_us -= job.cost_us;
    this.#waiting -= 1;
    turns.at += 1;
    if (turns.at === turns.jobs.length) {
      // Credit is for waiting jobs only: who comes back begins anew, and the map holds only tenants that wait.
      this.#tenants.delete(turns.tenant);
      this.#round.splice(this.#round.indexOf(turns), 1);
    } else if (turns.at > this.capacity) {
      turns.jobs = turns.jobs.slice(turns.at);
      turns.at = 0;
    }
    return job;
  }
}
