/**
 * The topics by name and number.
 *
 * Bound: 256.
 */
import { assert } from '@ron/kernel';
import { MAILBOX_LIMITS } from '@ron/proto';
import type { OrderRows } from './slots/slot-order.ts';
import { TopicState } from './topic-state.ts';

export class TopicStates {
  readonly #rows: OrderRows;
  readonly #byName = new Map<string, TopicState>();
  readonly #byIndex: (TopicState | undefined)[] = [];

  constructor(rows: OrderRows) {
    this.#rows = rows;
  }

  /** In the order of their creation. */
  get all(): readonly TopicState[] {
    return [...this.#byName.values()];
  }

  find(name: string): TopicState | undefined {
    return this.#byName.get(name);
  }

  at(index: number): TopicState {
    return this.#byIndex[index]!;
  }

  /** The existing one or a new one; undefined if there are 256. [mailbox I-11] */
  create(name: string): TopicState | undefined {
    const known = this.#byName.get(name);
    if (known !== undefined || this.#byName.size === MAILBOX_LIMITS.topics) return known;
    let index = 0;
    while (this.#byIndex[index] !== undefined) index += 1;
    assert(
      this.all.every((other) => other.index !== index),
      'a number has one topic',
    );
    const topic = new TopicState(name, index, this.#rows);
    this.#byName.set(name, topic);
    this.#byIndex[index] = topic;
    return topic;
  }

  /** Removes a topic that has never had a message: its first send failed. */
  remove(topic: TopicState): void {
    assert(this.#byName.get(topic.name) === topic, 'a topic is removed once');
    assert(topic.sent + topic.waiting + topic.dead + topic.reserved === 0, 'a topic that is removed has no messages');
    this.#byName.delete(topic.name);
    this.#byIndex[topic.index] = undefined;
  }
}
