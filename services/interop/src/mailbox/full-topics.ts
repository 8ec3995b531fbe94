/**
 * Topics of mailbox that refused a delivery because they are full.
 *
 * Contract: a topic counts as full until a delivery to it succeeds, or `FULL_RETRY_MS` have passed: then one is tried again.
 * Bound: `FULL_MAX` topics; further ones are not remembered, so their deliveries are tried each time.
 */
import { sched } from '@ron/kernel';

const FULL_RETRY_MS = 1000;
const FULL_MAX = 256;

export class FullTopics {
  readonly #until_ms = new Map<string, number>();

  add(topic: string): void {
    if (this.#until_ms.size < FULL_MAX || this.#until_ms.has(topic)) {
      this.#until_ms.set(topic, sched.now_ms() + FULL_RETRY_MS);
    }
  }

  delete(topic: string): void {
    this.#until_ms.delete(topic);
  }

  has(topic: string): boolean {
    const until_ms = this.#until_ms.get(topic);
    if (until_ms === undefined) return false;
    if (sched.now_ms() < until_ms) return true;
    this.#until_ms.delete(topic);
    return false;
  }
}
