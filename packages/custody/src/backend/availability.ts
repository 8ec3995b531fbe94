/**
 * Tracks whether a remote backend responds, and limits calls to it while it does not: a circuit breaker with backoff.
 *
 * Contract: after a failure, calls are refused immediately with its reason. One call per backoff interval is admitted as a
 * probe; the interval doubles from `BACKOFF_MS_MIN` to `BACKOFF_MS_MAX`, with jitter. The first success closes the breaker.
 */
import { RonError, sched, touch } from '@ron/kernel';
import type { BackendState } from './backend.ts';

const BACKOFF_MS_MIN = 100;
const BACKOFF_MS_MAX = 5000;

export class Availability {
  #failure: RonError | undefined;
  #backoff_ms = 0;
  #next_attempt_ms = 0;

  state(): BackendState {
    touch(this);
    return this.#failure === undefined ? { ok: true, reason: '' } : { ok: false, reason: this.#failure.message };
  }

  /** Call before each operation. Throws unless the backend is available or a probe is due. */
  admit(): void {
    touch(this);
    if (this.#failure === undefined) return;
    const wait_ms = this.#next_attempt_ms - sched.now_ms();
    if (wait_ms <= 0) {
      this.#postpone(this.#backoff_ms * 2);
      return;
    }
    if (!this.#failure.retryable) throw this.#failure;
    throw new RonError('not_ready', this.#failure.message, { retry_after_ms: Math.ceil(wait_ms) });
  }

  recordSuccess(): void {
    touch(this);
    this.#failure = undefined;
  }

  recordFailure(error: RonError): void {
    touch(this);
    // Concurrent calls fail together and count as one failure.
    if (this.#failure === undefined) this.#postpone(BACKOFF_MS_MIN);
    this.#failure = error;
  }

  #postpone(backoff_ms: number): void {
    this.#backoff_ms = Math.min(BACKOFF_MS_MAX, backoff_ms);
    this.#next_attempt_ms = sched.now_ms() + this.#backoff_ms * (0.5 + sched.random());
  }
}
