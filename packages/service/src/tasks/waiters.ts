/**
 * The requests of one route that wait for work which they share.
 *
 * Contract: at most `max()` requests wait, read at each request. Overflow: `busy`, at once, counted in `busy_total`.
 * Cancellation: a request leaves when its wait settles, which its deadline bounds.
 */
import { RonError } from '@ron/kernel';

const RETRY_AFTER_MS = 1000;

export class Waiters {
  readonly #route: string;
  readonly #max: () => number;
  #depth = 0;
  busy_total = 0;

  constructor(route: string, max: () => number) {
    this.#route = route;
    this.#max = max;
  }

  get depth(): number {
    return this.#depth;
  }

  async wait<T>(begin: () => Promise<T>): Promise<T> {
    // [index I-9] [edge I-9] A full route refuses at once.
    if (this.#depth >= this.#max()) {
      this.onBusy();
      throw new RonError('busy', `too many requests of ${this.#route} wait`, {
        op: this.#route,
        retry_after_ms: RETRY_AFTER_MS,
      });
    }
    this.#depth += 1;
    try {
      return await begin();
    } finally {
      this.#depth -= 1;
    }
  }

  /** Counts a request that waited and was answered with `busy`. */
  onBusy(): void {
    this.busy_total += 1;
  }

  /** For the owner of the channel. Waiting requests end with their deadlines. */
  close(): void {}
}
