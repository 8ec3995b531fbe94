/**
 * Whether what is behind a backend answers, and when it makes sense to ask again.
 *
 * Promise: while it is away, calls are refused at once with the reason; one after each pause, which grows from
 * `PAUSE_MS_MIN` to `PAUSE_MS_MAX` with jitter, may find out whether it is back. The first answer ends it.
 * Bound: one reason. Overflow: none. Cancellation: nothing waits.
 */
import { RonError, sched, touch } from '@ron/kernel';
import type { BackendState } from './backend.ts';

const PAUSE_MS_MIN = 100;
const PAUSE_MS_MAX = 5000;

export class Availability {
  #away: RonError | undefined;
  #pause_ms = 0;
  #ask_again_ms = 0;

  state(): BackendState {
    touch(this);
    return this.#away === undefined ? { ok: true, reason: '' } : { ok: false, reason: this.#away.message };
  }

  /** Before a call: throws unless it is worth a try. */
  admit(): void {
    touch(this);
    if (this.#away === undefined) return;
    const wait_ms = this.#ask_again_ms - sched.now_ms();
    if (wait_ms <= 0) {
      this.#postpone(this.#pause_ms * 2);
      return;
    }
    if (!this.#away.retryable) throw this.#away;
    throw new RonError('not_ready', this.#away.message, { retry_after_ms: Math.ceil(wait_ms) });
  }

  answered(): void {
    touch(this);
    this.#away = undefined;
  }

  failed(error: RonError): void {
    touch(this);
    // Calls that were under way together fail together: that is one failure.
    if (this.#away === undefined) this.#postpone(PAUSE_MS_MIN);
    this.#away = error;
  }

  #postpone(pause_ms: number): void {
    this.#pause_ms = Math.min(PAUSE_MS_MAX, pause_ms);
    this.#ask_again_ms = sched.now_ms() + this.#pause_ms * (0.5 + sched.random());
  }
}
