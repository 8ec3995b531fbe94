/** Assets that were answered without a fill, by tier: below the lock `counters` until a scrape reads them. */
import type { Cell } from '@ron/kernel';
import type { HitTier } from './cache-status.ts';

export type HitCounts = Record<HitTier, number>;

export const newHitCounts = (): HitCounts => ({ pack: 0, ram: 0, cas: 0 });

export class HitTotals {
  readonly #counts: Cell<HitCounts>;

  constructor(counts: Cell<HitCounts>) {
    this.#counts = counts;
  }

  count(tier: HitTier): void {
    // [edge I-1] The callback cannot wait.
    this.#counts.withSync((counts) => void (counts[tier] += 1));
  }

  totals(): Readonly<HitCounts> {
    return this.#counts.withSync((counts) => ({ ...counts }));
  }
}
