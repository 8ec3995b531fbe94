/**
 * One circuit breaker per origin, in a bounded table.
 *
 * Contract: an origin keeps its breaker while calls to it are in flight. Bound: `breakers_max` origins.
 * Overflow: the least recently used origin without calls in flight is evicted, closed breakers first. When every origin
 * has calls in flight, one more origin is `busy`.
 *
 *   using call = breakers.enter('https://tiles.example');
 *   const permit = call.breaker.tryAcquire();
 */
import { Breaker, type BreakerInit, RonError } from '@ron/kernel';

export interface BreakerCall extends Disposable {
  readonly breaker: Breaker;
}

interface Entry {
  readonly breaker: Breaker;
  calls: number;
}

export class Breakers {
  readonly #init: BreakerInit;
  readonly #breakers_max: number;
  /** Least recently used first. */
  readonly #byOrigin = new Map<string, Entry>();
  /** The last one in the table: it need not be moved there. */
  #newest: string | undefined;

  constructor(init: BreakerInit, breakers_max: number) {
    this.#init = init;
    this.#breakers_max = breakers_max;
  }

  get size(): number {
    return this.#byOrigin.size;
  }

  /** Origins whose breaker is open. */
  get open(): readonly string[] {
    return [...this.#byOrigin].filter(([, { breaker }]) => breaker.state === 'open').map(([origin]) => origin);
  }

  /** Marks a call to the origin as in flight until it is disposed. Throws `busy` when the table is full of such calls. */
  enter(origin: string): BreakerCall {
    const entry = this.#byOrigin.get(origin) ?? this.#add(origin);
    if (origin !== this.#newest) {
      this.#byOrigin.delete(origin);
      this.#byOrigin.set(origin, entry);
      this.#newest = origin;
    }
    entry.calls++;
    return { breaker: entry.breaker, [Symbol.dispose]: () => void entry.calls-- };
  }

  #add(origin: string): Entry {
    if (this.#byOrigin.size >= this.#breakers_max) this.#evict();
    return { breaker: new Breaker(origin, this.#init), calls: 0 };
  }

  #evict(): void {
    const unused = [...this.#byOrigin].filter(([, { calls }]) => calls === 0);
    const oldest = unused.find(([, { breaker }]) => breaker.state === 'closed') ?? unused[0];
    if (oldest === undefined) throw new RonError('busy', 'requests to too many servers at once', { op: 'egress_slot' });
    this.#byOrigin.delete(oldest[0]);
  }
}
