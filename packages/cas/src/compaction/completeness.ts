/**
 * Guards work that reclaims space: it may continue only while every part of a volume has answered completely.
 *
 * Contract: `check` throws `not_ready`, with the names of the parts, when a part is absent, was used apart or lacks
 * decisions, and when any part joined or left since the guard was made, even if it is back. A record is dropped in the same
 * synchronous step as the check.
 *
 *     const guard = new CompletenessGuard(volume);
 *     for (const each of candidates) { guard.check(); drop(each); }
 */
import { RonError } from '@ron/kernel';
import type { Volume } from '../volume/volume.ts';

/** An absent volume may be back by then. */
const RETRY_AFTER_MS = 5000;

export const notComplete = (reason: string): RonError =>
  new RonError('not_ready', reason, { retry_after_ms: RETRY_AFTER_MS });

export class CompletenessGuard {
  readonly #volume: Volume;
  readonly #changes_total: number | undefined;

  constructor(volume: Volume) {
    this.#volume = volume;
    this.#changes_total = volume.changes_total;
  }

  check(): void {
    const { incomplete, changes_total, lastChange } = this.#volume;
    if (incomplete !== undefined) throw notComplete(`nothing is reclaimed: ${incomplete}`);
    if (changes_total === this.#changes_total) return;
    throw notComplete(`nothing more is reclaimed in this run: ${lastChange ?? 'a volume'} came or went during it`);
  }
}
