/**
 * The unsigned receipts that the disk could not read. They are passed over, and tried again all together.
 *
 * Contract: a row is in it until its next try, after the pause of `ReadBackoff`.
 * Bound: one number for each row of the index.
 */
import { ReadBackoff } from '../read-backoff.ts';
import type { Row } from './receipt-index.ts';

export class UnreadReceipts {
  readonly #rows = new Set<Row>();
  readonly #backoff = new ReadBackoff();

  get size(): number {
    return this.#rows.size;
  }

  has(row: Row): boolean {
    return this.#rows.has(row);
  }

  add(row: Row): void {
    if (this.#rows.size === 0) this.#backoff.failed();
    this.#rows.add(row);
  }

  /** How long until they are tried again; Infinity if there are none. */
  get wait_ms(): number {
    return this.size === 0 ? Infinity : this.#backoff.wait_ms;
  }

  /** Makes them wanted again once it is time. */
  release(): void {
    if (this.wait_ms <= 0) this.#rows.clear();
  }

  /** All receipts could be read. */
  succeeded(): void {
    if (this.size === 0) this.#backoff.succeeded();
  }
}
