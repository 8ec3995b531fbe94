/**
 * Takes the index of a volume to disk: a while after a change, when it is full, and when somebody needs it there.
 *
 * Promise: what the log could still lose is not stored. A flush that fails leaves the entries in memory and is tried again;
 * the log has them all.
 * Bound: one flush at a time, and one that waits for it. Cancellation: `stop`, for what has not begun.
 */
import { NEVER, sched, type Timer } from '@ron/kernel';
import type { SegmentLog } from '@ron/log';
import type { Place, PlaceIndex } from './place-index.ts';
import { onDisk } from './record-places.ts';

export interface IndexFlusherInit {
  log: SegmentLog;
  index: PlaceIndex;
  /** Infinity: only when somebody asks. */
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

  /** A flush that is due has failed, or nobody has begun it. */
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
      await index.flush({
        applied: () => ({ position: log.tail, seq: log.seq }),
        syncLog: () => log.sync(NEVER),
        isDurable: (place) => place.isDamaged === true || isDurableAt(log, place),
      });
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

export const isDurableAt = (log: SegmentLog, place: Place): boolean =>
  log.isDurable(place.segment, place.offset + onDisk(place));
