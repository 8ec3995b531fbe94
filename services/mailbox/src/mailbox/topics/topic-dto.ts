/** Topics in the shape of the API. */
import type { TopicDto, TopicPolicy } from '@ron/proto';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import type { SeenKeys } from '../../queue/seen-keys.ts';
import { NONE } from '../../queue/states.ts';
import type { AgeClock } from '../age-clock.ts';
import type { Topic, Topics } from './topics.ts';

export interface TopicDtoInit {
  readonly ages: AgeClock;
  readonly state: MailboxState;
  readonly seen: SeenKeys;
  readonly topics: Topics;
}

export function topicDto({ state, seen, topics, ages }: TopicDtoInit, topic: Topic): TopicDto {
  const policy = topics.policyOf(topic);
  return {
    topic: topic.name,
    ledger: topic.state.ledger(),
    bytes: topic.state.bytes,
    dead_bytes: topic.state.dead_bytes,
    oldest_s: oldest_s(state, topic, ages.now_ms()),
    ...topic.counts.rates,
    policy,
    policy_set: Object.keys(topic.policy_set) as (keyof TopicPolicy)[],
    window_ms: seen.windowInForce(topic.state, policy.window_ms),
    keys: seen.count(topic.state),
  };
}

function oldest_s(state: MailboxState, topic: Topic, now_ms: number): number | null {
  const slot = state.oldest(topic.state);
  return slot === NONE ? null : Math.max(0, (now_ms - state.sentMs(slot)) / 1000);
}
