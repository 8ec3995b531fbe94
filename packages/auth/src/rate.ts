/**
 * The `rate` caveats' counters.
 *
 * Promise: through one caveat pass at most `count` requests plus `count` per period, however often its holder attenuates
 * it: a counter belongs to the place in the chain where the caveat stands, and all that grew from there shares it.
 * Counted in this process; a service that runs twice allows twice.
 * Bound: `counters_max` numbers. Overflow: a counter that has recovered in full is dropped, which loses nothing. When none
 * has, the request is refused: dropping a live counter would lift its ceiling. Cancellation: nothing waits.
 */
import type { RateCaveat } from './caveats.ts';

export interface RateLink {
  /** Names the caveat's place in the chain. */
  readonly id: string;
  readonly caveat: RateCaveat;
}

/** How many of the oldest counters are looked at when room is needed. Keeps the cost of a refusal constant. */
const ROOM_SCAN_MAX = 16;
const ROOM_RETRY_MS = 1000;

export class RateCeilings {
  readonly #counters_max: number;
  /** By link: the time at which the caveat would be back to its full burst (GCRA's theoretical arrival time). */
  readonly #recovered_ms = new Map<string, number>();

  constructor(counters_max: number) {
    this.#counters_max = counters_max;
  }

  get size(): number {
    return this.#recovered_ms.size;
  }

  /** Counts one request against all links. Returns 0, or how long to wait when one of them is exhausted. */
  take(links: readonly RateLink[], now_ms: number): number {
    let wait_ms = 0;
    for (const link of links) wait_ms = Math.max(wait_ms, this.#wait_ms(link, now_ms));
    if (wait_ms > 0) return wait_ms;
    for (const link of links) if (!this.#count(link, now_ms)) return ROOM_RETRY_MS;
    return 0;
  }

  #wait_ms({ id, caveat }: RateLink, now_ms: number): number {
    const debt_ms = Math.max(0, (this.#recovered_ms.get(id) ?? 0) - now_ms);
    return Math.max(0, debt_ms + caveat.period_ms / caveat.count - caveat.period_ms);
  }

  #count({ id, caveat }: RateLink, now_ms: number): boolean {
    const known_ms = this.#recovered_ms.get(id);
    if (known_ms === undefined && this.size >= this.#counters_max && !this.#makeRoom(now_ms)) return false;
    this.#recovered_ms.set(id, Math.max(known_ms ?? 0, now_ms) + caveat.period_ms / caveat.count);
    return true;
  }

  #makeRoom(now_ms: number): boolean {
    let looked = 0;
    for (const [id, recovered_ms] of this.#recovered_ms) {
      if (looked++ === ROOM_SCAN_MAX) return false;
      this.#recovered_ms.delete(id);
      if (recovered_ms <= now_ms) return true;
      this.#recovered_ms.set(id, recovered_ms); // To the back of the order, so that the next search looks elsewhere.
    }
    return false;
  }
}
