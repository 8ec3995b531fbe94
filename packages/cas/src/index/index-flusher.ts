/**
 * Flushes the index of a volume to disk: some time after a change, when it is full, and on request.
 *
 * Contract: a flush that fails leaves the entries in memory and is retried; the log has all of them.
 * Bound: one flush at a time, and one that waits for it. Cancellation: `stop` cancels a flush that has not begun.
 */
import { sched, type Timer } from '@ron/kernel';
import type { SegmentLog } from '@ron/log';
import type { PlaceIndex } from './place-index.ts';

export interface IndexFlusherInit {
  log: SegmentLog;
  index: PlaceIndex;
  /** Infinity: only on request. */
  flush_after_ms: number;
}

const RETRY_AFTER_MS = 1000;

export class IndexFlusher {
  readonly #init: IndexFlusherInit;
  #timer: Timer | undefined;
  #isStopped = false;
  /** Why the last flush failed; undefined when it did not. */
  failure: unknown;

  constructor(init: IndexFlusherInit) {
    this.#init = init;
  }

  /** Something has changed. */
  soon(): void {
    if (this.#init.flush_after_ms < Infinity) this.#after(this.#init.flush_after_ms);
  }

  /** Schedules a retry: a flush that is due has failed or was not begun. */
  again(): void {
    this.#after(RETRY_AFTER_MS);
  }

  #after(wait_ms: number): void {
    if (this.#timer !== undefined || this.#isStopped) return;
    this.#timer = sched.timer(
      wait_ms,
      () => {
        this.#timer = undefined;
        void this.flush().catch(() => this.again());
      },
      'index.flush',
    );
  }

  async flush(): Promise<void> {
    const { log, index } = this.#init;
    try {
      await index.flush(() => log.durable);
      this.failure = undefined;
    } catch (error) {
      this.failure = error;
      throw error;
    }
  }

  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
  }
}
