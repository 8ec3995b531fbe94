/**
 * Wakes one waiter, or the next one to come, as `Notify` of tokio does.
 *
 * Contract: `notifyOne` wakes the longest waiter. Without a waiter it stores a permit, and the next `notified` returns at
 * once: no wake-up is lost between the check of a condition and the wait for it. Several notifications without a waiter
 * store one permit. `notified` resolves to true when notified and to false when `within_ms` has passed.
 * Bound: one permit; `waiters_max` waiters. Overflow: one waiter too many is refused with `busy`.
 * Cancellation: `notified` rejects with the signal's reason and consumes no permit: an aborted waiter that was already
 * woken passes its notification on.
 *
 *     const changed = new Notify('plan');
 *     while (!stopping.aborted) {
 *       await plan();
 *       await changed.notified(stopping, { within_ms: interval_ms }); // changed.notifyOne() ends the wait early
 *     }
 */
import { RonError } from '../errors.ts';
import { touch } from '../sched.ts';
import { WaitList } from './wait-list.ts';

const WAITERS_MAX = 64;

export interface NotifyInit {
  /** Default 64. */
  waiters_max?: number;
}

export interface NotifiedInit {
  /** Infinity waits without a limit. Default Infinity. */
  within_ms?: number;
}

export class Notify {
  readonly name: string;
  readonly #waiters_max: number;
  readonly #waiters: WaitList<boolean, undefined>;
  #hasPermit = false;

  constructor(name: string, init: NotifyInit = {}) {
    this.name = name;
    this.#waiters_max = init.waiters_max ?? WAITERS_MAX;
    this.#waiters = new WaitList({ owner: this, label: `${name}.notified`, expired: () => false });
  }

  notifyOne(): void {
    touch(this);
    if (this.#waiters.size > 0) this.#waiters.wakeFirst(true);
    else this.#hasPermit = true;
  }

  async notified(signal: AbortSignal, { within_ms = Infinity }: NotifiedInit = {}): Promise<boolean> {
    touch(this);
    signal.throwIfAborted();
    if (this.#hasPermit) {
      this.#hasPermit = false;
      return true;
    }
    if (this.#waiters.size >= this.#waiters_max) {
      throw new RonError('busy', `${this.name}: ${this.#waiters_max} callers already wait`);
    }
    const isNotified = await this.#waiters.park(signal, undefined, within_ms === Infinity ? undefined : within_ms);
    if (!signal.aborted) return isNotified;
    if (isNotified) this.notifyOne();
    throw signal.reason;
  }
}
