/**
 * The topics with everything that is not part of the message state: policy, token tag, counters.
 *
 * Contract: a topic exists once its first message or its policy is durable. Sends reserve room in a topic that does not exist
 * yet, and other calls hold it; when the last of them has failed, the topic is forgotten. So a name has one `Topic` from its
 * first use on. Bound: 256 topics, those that do not exist yet included.
 */
import { assert } from '@ron/kernel';
import { MAILBOX_LIMITS, type TopicPolicy } from '@ron/proto';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import type { TopicState } from '../../queue/topic-state.ts';
import type { Policies } from './policy.ts';
import { topicTag } from '../receive/token.ts';
import { AllTopicCounts, type TopicCounts } from './topic-counts.ts';

export const TOO_MANY_TOPICS = `there are ${MAILBOX_LIMITS.topics} topics already`;
/** A topic without room for it is full. */
const PAYLOAD_BYTES_MIN = 1;

export interface Topic {
  readonly name: string;
  readonly state: TopicState;
  readonly tag: number;
  readonly counts: TopicCounts;
  /** The fields that were set for it. */
  policy_set: Partial<TopicPolicy>;
  exists: boolean;
  /** Calls that may create it, besides sends. */
  holds: number;
  /** Payload bytes of the send that found no room last; the smallest payload once there is room for it. */
  refused_bytes: number;
  /** When the log was last told that the topic is full; monotonic. */
  full_reported_ms: number;
}

export interface TopicsInit {
  readonly state: MailboxState;
  readonly policies: Policies;
}

export class Topics {
  readonly counts = new AllTopicCounts();
  readonly #init: TopicsInit;
  readonly #byName = new Map<string, Topic>();

  constructor(init: TopicsInit) {
    this.#init = init;
  }

  /** A topic that exists. */
  find(name: string): Topic | undefined {
    const topic = this.#byName.get(name);
    return topic?.exists === true ? topic : undefined;
  }

  of(state: TopicState): Topic {
    return this.#byName.get(state.name)!;
  }

  /** Those that exist, in the order of their creation. */
  all(): Topic[] {
    return [...this.#byName.values()].filter(({ exists }) => exists);
  }

  policyOf({ name, policy_set }: Topic): TopicPolicy {
    return this.#init.policies.of(name, policy_set);
  }

  /** The topic for a send, which may not exist yet; undefined if it cannot be created. */
  forSend(name: string, mayCreate: boolean): Topic | undefined {
    const known = this.#byName.get(name);
    return known ?? (mayCreate ? this.#create(name) : undefined);
  }

  /** The topic is durable. Returns it, or undefined if there are too many: the log has more topics than the limit. */
  found(name: string, policy_set: Partial<TopicPolicy>): Topic | undefined {
    const topic = this.#byName.get(name) ?? this.#create(name);
    if (topic === undefined) return undefined;
    topic.policy_set = { ...policy_set };
    topic.exists = true;
    return topic;
  }

  /** Keeps a topic that does not exist yet, until the hold is disposed of. */
  hold(topic: Topic): Disposable {
    topic.holds += 1;
    return {
      [Symbol.dispose]: () => {
        topic.holds -= 1;
        this.forgetUnused(topic);
      },
    };
  }

  /** A call that could have created the topic has failed. */
  forgetUnused(topic: Topic): void {
    if (topic.exists || topic.holds > 0 || topic.state.reserved > 0) return;
    assert(this.#byName.get(topic.name) === topic, 'a name has one topic');
    this.#init.state.closeTopic(topic.state);
    this.#byName.delete(topic.name);
    this.counts.forget(topic.name);
  }

  /** Whether no topic can be created. */
  get isAtLimit(): boolean {
    return this.#byName.size >= MAILBOX_LIMITS.topics;
  }

  /** Topics that are at a limit, or refused a send for lack of room and still have too little. */
  full(): string[] {
    return this.all()
      .filter((topic) => this.#isFull(topic))
      .map(({ name }) => name);
  }

  #isFull(topic: Topic): boolean {
    const { max_messages, max_bytes } = this.policyOf(topic);
    const { waiting, bytes } = topic.state;
    // The policy may have changed: a payload that never fits does not make the topic full.
    if (topic.refused_bytes > max_bytes || bytes + topic.refused_bytes <= max_bytes)
      topic.refused_bytes = PAYLOAD_BYTES_MIN;
    return waiting >= max_messages || bytes + topic.refused_bytes > max_bytes;
  }

  #create(name: string): Topic | undefined {
    // [mailbox I-11]
    const state = this.#init.state.createTopic(name);
    if (state === undefined) return undefined;
    const counts = this.counts.of(name);
    const topic = {
      name,
      state,
      tag: topicTag(name),
      counts,
      policy_set: {},
      exists: false,
      holds: 0,
      refused_bytes: PAYLOAD_BYTES_MIN,
      full_reported_ms: -Infinity,
    };
    this.#byName.set(name, topic);
    return topic;
  }
}
