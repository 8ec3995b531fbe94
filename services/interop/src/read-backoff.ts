/**
 * The growing pause between tries to read parts of a disk that failed.
 *
 * Contract: `wait_ms` is how long until the next try: 0.5 s after the first failure, and up to `BACKOFF_MS_MAX`; 0 before any.
 */
import { jittered, sched } from '@ron/kernel';

const BACKOFF_MS_MAX = 60_000;
const backoff = jittered({ tries_max: Infinity, from_ms: 500, to_ms: 1000, factor: 2, cap_ms: BACKOFF_MS_MAX });
/** Further failures do not lengthen the wait. */
const FAILURES_MAX = 8;

export class ReadBackoff {
  #failures = 0;
  #due_ms = 0;

  get wait_ms(): number {
    return Math.max(0, this.#due_ms - sched.now_ms());
  }

  failed(): void {
    this.#due_ms = sched.now_ms() + backoff.backoff_ms(this.#failures);
    this.#failures = Math.min(FAILURES_MAX, this.#failures + 1);
  }

  succeeded(): void {
    this.#failures = 0;
  }
}
