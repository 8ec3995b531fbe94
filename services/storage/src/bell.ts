/**
 * A wait that ends when its time is over or on `ring`.
 *
 * Promise: a ring without a waiter ends the next wait at once; many rings count as one. Bound: one waiter.
 * Cancellation: the wait ends with the signal too, which the waiter checks.
 */
import { assert, sched, touch, type Parked } from '@ron/kernel';

/** The longest that a timer can wait. */
const WAIT_MS_MAX = 2 ** 31 - 1;

export class Bell {
  #isRung = false;
  #waiter: Parked<void> | undefined;

  ring(): void {
    touch(this);
    if (this.#waiter === undefined) this.#isRung = true;
    this.#wake();
  }

  async wait(wait_ms: number, signal: AbortSignal): Promise<void> {
    touch(this);
    assert(this.#waiter === undefined, 'one waits at a time');
    if (this.#isRung || signal.aborted) {
      this.#isRung = false;
      return;
    }
    const waiter = sched.park<void>('bell');
    this.#waiter = waiter;
    const wake = (): void => this.#wake();
    const timer = sched.timer(Math.min(wait_ms, WAIT_MS_MAX), wake, 'bell');
    signal.addEventListener('abort', wake, { once: true });
    try {
      await waiter.promise;
    } finally {
      timer.cancel();
      signal.removeEventListener('abort', wake);
    }
  }

  #wake(): void {
    const waiter = this.#waiter;
    this.#waiter = undefined;
    waiter?.wake();
  }
}
