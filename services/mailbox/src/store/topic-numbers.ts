/**
 * Numbers for topics whose `topic` record is not durable yet.
 *
 * Contract: until a topic is durable, each group that refers to it holds its `topic` record: no group depends on another one,
 * which may fail. Groups that overlap use the same number. A number is free again when no group uses it.
 * Bound: one entry for each topic of the groups in progress.
 */
import type { RecordInput } from '@ron/log';
import { encodeTopic } from './codec/entry-codec.ts';
import { markId } from './codec/message-codec.ts';
import type { DurableState } from './durable-state.ts';
import { RECORD, type MessageInput } from './records.ts';

interface Pending {
  readonly number: number;
  users: number;
}

/** The topics of a group. Dispose of it when the append has ended. */
export interface GroupTopics extends Disposable {
  /** Of the topics that are not durable yet. */
  readonly records: RecordInput[];
  numberOf(topic: string): number;
}

export class TopicNumbers {
  readonly #state: DurableState;
  readonly #pending = new Map<string, Pending>();

  constructor(state: DurableState) {
    this.#state = state;
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

  ofGroup(messages: readonly MessageInput[]): GroupTopics {
    const taken = new Map<string, number>();
    const records: RecordInput[] = [];
    for (const { meta } of messages) {
      const { topic } = meta;
      if (this.#state.topics.get(topic) !== undefined || taken.has(topic)) continue;
      const number = this.take(topic);
      taken.set(topic, number);
      records.push(this.#newTopic(number, topic));
    }
    return {
      records,
      numberOf: (topic) => this.#state.topics.get(topic)?.number ?? taken.get(topic)!,
      [Symbol.dispose]: () => {
        for (const topic of taken.keys()) this.release(topic);
      },
    };
  }

  /** Another group may create the topic first, even with a policy. */
  #newTopic(number: number, topic: string): RecordInput {
    const { topics, target, seq_last } = this.#state;
    const apply = (): void => {
      if (topics.get(topic) !== undefined) return;
      topics.put({ number, topic, policy: {} });
      target.onTopic(topic, {});
    };
    const payload = encodeTopic({ number, topic, policy: {}, isNew: true });
    return { type: RECORD.topic, id: markId(seq_last), payload, context: apply };
  }

  #free(): number {
    const used = new Set([...this.#pending.values()].map(({ number }) => number));
    for (let number = 0; ; number++) {
      if (this.#state.topics.at(number) === undefined && !used.has(number)) return number;
    }
  }
}
