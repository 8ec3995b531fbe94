/**
 * The policy in force of each topic: the fields that were set for it, the others from the configuration.
 *
 * Contract: a reload applies to the next call. Bound: one cached policy for each topic that exists.
 */
import type { TopicPolicy } from '@ron/proto';
import type { MailboxConfig } from '../../config.ts';

/** The configuration keys of policies. */
export type PolicyConfig = Pick<MailboxConfig, 'topics'>;

interface Cached {
  readonly config: PolicyConfig;
  readonly policy: TopicPolicy;
}

/** Topics below this name keep idempotency keys for `topics.hooks_window`. */
const HOOKS = 'hooks.';

export class Policies {
  readonly #current: { readonly value: PolicyConfig };
  readonly #cached = new WeakMap<Partial<TopicPolicy>, Cached>();

  constructor(current: { readonly value: PolicyConfig }) {
    this.#current = current;
  }

  /** `set` must be a value of its own for each topic: it is the key of the cache. */
  of(topic: string, set: Partial<TopicPolicy>): TopicPolicy {
    const config = this.#current.value;
    const cached = this.#cached.get(set);
    if (cached?.config === config) return cached.policy;
    const policy = { ...defaultPolicy(topic, config), ...set };
    this.#cached.set(set, { config, policy });
    return policy;
  }
}

function defaultPolicy(topic: string, { topics }: PolicyConfig): TopicPolicy {
  return {
    max_messages: topics.max_messages,
    max_bytes: topics.max_bytes,
    max_age_ms: topics.max_age,
    max_deliveries: topics.max_deliveries,
    window_ms: topic.startsWith(HOOKS) ? topics.hooks_window : topics.window,
    dead_max_age_ms: topics.dead_max_age,
    dead_max_messages: topics.dead_max_messages,
    dead_max_bytes: topics.dead_max_bytes,
  };
}
