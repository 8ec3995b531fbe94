/**
 * Keys that a remote backend refuses to use, while it serves others: access was denied, or the key is disabled there.
 *
 * Contract: a refused key is refused again without a call for `REFUSED_MS`; then one call decides anew. Other keys are not
 * affected. Bound: `KEYS_MAX` keys. Overflow: the oldest is forgotten, so its next call reaches the backend.
 */
import { RonError, sched } from '@ron/kernel';

const KEYS_MAX = 1024;
const REFUSED_MS = 5000;

interface Refusal {
  readonly message: string;
  readonly until_ms: number;
}

export class RefusedKeys {
  readonly #refused = new Map<string, Refusal>();

  /** Call before each use of a key. Throws `not_ready` if it was refused a short time ago. */
  admit(key: string): void {
    const refusal = this.#refused.get(key);
    if (refusal === undefined) return;
    const wait_ms = refusal.until_ms - sched.now_ms();
    if (wait_ms > 0) throw refused(refusal.message, wait_ms);
    this.#refused.delete(key);
  }

  /** Marks the key, and returns the error for the caller. */
  refuse(key: string, message: string): RonError {
    this.#refused.delete(key);
    this.#refused.set(key, { message, until_ms: sched.now_ms() + REFUSED_MS });
    const [oldest] = this.#refused.keys();
    if (this.#refused.size > KEYS_MAX) this.#refused.delete(oldest!);
    return refused(message, REFUSED_MS);
  }
}

const refused = (message: string, wait_ms: number): RonError =>
  new RonError('not_ready', message, { op: 'cloud_key', retry_after_ms: Math.ceil(wait_ms) });
