/**
 * The counters of `rate` caveats.
 *
 * Contract: a caveat admits at most `count` requests plus `count` per period, however often its holder attenuates it: a
 * counter belongs to the position of the caveat in the chain, and all tokens derived from there share it. Counters are
 * per process; a service that runs twice admits twice as many.
 * Bound: `counters_max` numbers, of which one capability with all its attenuated tokens may hold an eighth: any holder
 * can write `rate` caveats, and must not exhaust the counters of other clients.
 * Overflow: a fully recovered counter is dropped, which loses nothing. If there is none, the request is refused, because
 * dropping a live counter would lift its limit.
 */
import type { RateCaveat } from '../capability/caveats.ts';

export interface RateLink {
  /** Identifies the position of the caveat in the chain. */
  readonly id: string;
  /** The capability that it belongs to; attenuated tokens belong to the same one. */
  readonly capability_id: string;
  readonly caveat: RateCaveat;
}

/** How many of the oldest counters are examined for eviction. Keeps the cost of a refusal constant. */
const ROOM_SCAN_MAX = 16;
const ROOM_RETRY_MS = 1000;
const SHARE_MAX = 1 / 8;

/** By link: the time at which the caveat would be back to its full burst (GCRA's theoretical arrival time). */
type Counters = Map<string, number>;

export class RateCounters {
  readonly #counters_max: number;
  readonly #share_max: number;
  readonly #byCapability = new Map<string, Counters>();
  #size = 0;

  constructor(counters_max: number) {
    this.#counters_max = counters_max;
    this.#share_max = Math.max(1, Math.floor(counters_max * SHARE_MAX));
  }

  get size(): number {
    return this.#size;
  }

  /** Counts one request against all links. Returns 0, or the time to wait if one of them is exhausted. */
  take(links: readonly RateLink[], now_ms: number): number {
    let wait_ms = 0;
    for (const link of links) wait_ms = Math.max(wait_ms, this.#wait_ms(link, now_ms));
    if (wait_ms > 0) return wait_ms;
    for (const link of links) if (!this.#count(link, now_ms)) return ROOM_RETRY_MS;
    return 0;
  }

  #wait_ms({ id, capability_id, caveat }: RateLink, now_ms: number): number {
    const recovered_ms = this.#byCapability.get(capability_id)?.get(id) ?? 0;
    const debt_ms = Math.max(0, recovered_ms - now_ms);
    return Math.max(0, debt_ms + caveat.period_ms / caveat.count - caveat.period_ms);
  }

  #count({ id, capability_id, caveat }: RateLink, now_ms: number): boolean {
    const own: Counters = this.#byCapability.get(capability_id) ?? new Map<string, number>();
    const known_ms = own.get(id);
    if (known_ms === undefined) {
      if (own.size >= this.#share_max && !this.#dropRecovered(own, now_ms)) return false;
      if (this.#size >= this.#counters_max && !this.#makeRoom(now_ms)) return false;
      this.#size += 1;
    }
    own.set(id, Math.max(known_ms ?? 0, now_ms) + caveat.period_ms / caveat.count);
    this.#byCapability.set(capability_id, own);
    return true;
  }

  #makeRoom(now_ms: number): boolean {
    let looked = 0;
    for (const [capability_id, own] of this.#byCapability) {
      if (looked++ === ROOM_SCAN_MAX) return false;
      const dropped = this.#dropRecovered(own, now_ms);
      // Moves to the end of the order, so that the next search examines other counters.
      this.#byCapability.delete(capability_id);
      if (own.size > 0) this.#byCapability.set(capability_id, own);
      if (dropped) return true;
    }
    return false;
  }

  /** Drops one recovered counter among the oldest, if there is one, and moves the others to the end of the order. */
  #dropRecovered(own: Counters, now_ms: number): boolean {
    let looked = 0;
    for (const [id, recovered_ms] of own) {
      if (looked++ === ROOM_SCAN_MAX) return false;
      own.delete(id);
      if (recovered_ms <= now_ms) {
        this.#size -= 1;
        return true;
      }
      own.set(id, recovered_ms);
    }
    return false;
  }
}
