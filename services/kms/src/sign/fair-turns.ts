/**
 * Whose turn it is: jobs of many tenants, served so that none waits for another's flood.
 *
 * Promise: tenants that have jobs are served in rounds; in each a tenant may use up `QUANTUM` units of cost, and what it
 * saved for a dearer job is kept (deficit round robin). So over time tenants with work get equal parts of the workers,
 * whatever each of them has queued. A tenant's own jobs are served in their order.
 * Bound: `capacity` jobs. One tenant holds at most as many as would then still be free: alone half of the queue, two of
 * them a third each. So there is always room for the first job of another.
 * Overflow: `add` gives false. Cancellation: nothing waits here; a job that is over is skipped by whoever takes it.
 *
 *   round -> [acme: job job job] -> [zoo: job] -> back to acme
 */
import { assert } from '@ron/kernel';

/** Units that a tenant may use up in one round. A single signature costs 1. */
const QUANTUM = 16;

interface Queued<T> {
  readonly item: T;
  readonly cost: number;
  next: Queued<T> | undefined;
}

interface TenantTurns<T> {
  readonly tenant: string;
  first: Queued<T> | undefined;
  last: Queued<T> | undefined;
  waiting: number;
  /** Units left over from earlier turns. */
  credit: number;
}

export class FairTurns<T> {
  readonly capacity: number;
  readonly #tenants = new Map<string, TenantTurns<T>>();
  /** Those with jobs, the one whose turn it is first. */
  #round: TenantTurns<T>[] = [];
  #waiting = 0;

  constructor(capacity: number) {
    assert(Number.isSafeInteger(capacity) && capacity >= 1, 'capacity is a whole number, at least 1');
    this.capacity = capacity;
  }

  /** Jobs that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  waitingOf(tenant: string): number {
    return this.#tenants.get(tenant)?.waiting ?? 0;
  }

  /** False when the tenant holds its share, or nothing is free. */
  add(tenant: string, item: T, cost: number): boolean {
    const free = this.capacity - this.#waiting;
    let turns = this.#tenants.get(tenant);
    if (free === 0 || (turns !== undefined && turns.waiting >= free)) return false;
    if (turns === undefined) {
      turns = { tenant, first: undefined, last: undefined, waiting: 0, credit: 0 };
      this.#tenants.set(tenant, turns);
      this.#round.push(turns);
    }
    const queued: Queued<T> = { item, cost, next: undefined };
    if (turns.last === undefined) turns.first = queued;
    else turns.last.next = queued;
    turns.last = queued;
    turns.waiting += 1;
    this.#waiting += 1;
    return true;
  }

  /** The next job; undefined when none waits. */
  next(): T | undefined {
    while (this.#round.length > 0) {
      const turns = this.#round[0]!;
      const { first } = turns;
      assert(first !== undefined, 'a tenant in the round has a job');
      if (turns.credit >= first.cost) return this.#take(turns, first);
      turns.credit += QUANTUM;
      if (turns.credit >= first.cost && this.#round.length === 1) return this.#take(turns, first);
      // Its credit is for its next turn: now the others have theirs.
      this.#round.push(this.#round.shift()!);
    }
    return undefined;
  }

  #take(turns: TenantTurns<T>, queued: Queued<T>): T {
    turns.credit -= queued.cost;
    turns.first = queued.next;
    turns.waiting -= 1;
    this.#waiting -= 1;
    if (turns.first === undefined) {
      // Credit is for waiting jobs only: who comes back begins anew, and the map holds only tenants that wait.
      this.#tenants.delete(turns.tenant);
      this.#round.splice(this.#round.indexOf(turns), 1);
    }
    return queued.item;
  }
}
