/**
 * The unsigned receipts that the disk could not read. They are passed over, and tried again all together.
 *
 * Contract: a row is in it until its next try, after 0.5 s at first and up to `BACKOFF_MS_MAX` while the disk fails.
 * Bound: one number for each row of the index.
 */
import { jittered, sched } from '@ron/kernel';
import type { Row } from './receipt-index.ts';

const BACKOFF_MS_MAX = 60_000;
const backoff = jittered({ tries_max: Infinity, from_ms: 500, to_ms: 1000, factor: 2, cap_ms: BACKOFF_MS_MAX });
/** Further failures do not lengthen the wait. */
const FAILURES_MAX = 8;

export class UnreadReceipts {
  readonly #rows = new Set<Row>();
  #failures = 0;
  #due_ms = 0;

  get size(): number {
    return this.#rows.size;
  }

  has(row: Row): boolean {
    return this.#rows.has(row);
  }

  add(row: Row): void {
    if (this.#rows.size === 0) {
      this.#due_ms = sched.now_ms() + backoff.backoff_ms(this.#failures);
      this.#failures = Math.min(FAILURES_MAX, this.#failures + 1);
    }
    this.#rows.add(row);
  }

  /** How long until they are tried again; Infinity if there are none. */
  get wait_ms(): number {
    return this.size === 0 ? Infinity : Math.max(0, this.#due_ms - sched.now_ms());
  }

  /** Makes them wanted again once it is time. */
  release(): void {
    if (this.wait_ms <= 0) this.#rows.clear();
  }

  /** All receipts could be read. */
  succeeded(): void {
    if (this.size === 0) this.#failures = 0;
  }
}
