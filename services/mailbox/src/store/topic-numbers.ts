/**
 * Numbers for topics whose `topic` record is not durable yet.
 *
 * Contract: until a topic is durable, each group that refers to it holds its `topic` record: no group depends on another one,
 * which may fail. Groups that overlap use the same number. A number is free again when no group uses it.
 * Bound: one entry for each topic of the groups in progress.
 */
import type { Topics } from './ledger/topics.ts';

interface Pending {
  readonly number: number;
  users: number;
}

export class TopicNumbers {
  readonly #topics: Topics;
  readonly #pending = new Map<string, Pending>();

  constructor(topics: Topics) {
    this.#topics = topics;
  }

  /** Until `release`, the number belongs to the topic. */
  take(topic: string): number {
    const pending = this.#pending.get(topic) ?? { number: this.#free(), users: 0 };
    pending.users += 1;
    this.#pending.set(topic, pending);
    return pending.number;
  }

  release(topic: string): void {
    const pending = this.#pending.get(topic);
    if (pending === undefined) return;
    pending.users -= 1;
    if (pending.users === 0) this.#pending.delete(topic);
  }

  #free(): number {
    const used = new Set([...this.#pending.values()].map(({ number }) => number));
    for (let number = 0; ; number++) if (this.#topics.at(number) === undefined && !used.has(number)) return number;
  }
}
