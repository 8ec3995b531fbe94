/** The metrics of mailbox, besides those of the listener and the runtime. `TopicCounts` bounds the labels of topics. */
import type { Counter, Metrics, Sample } from '@ron/telemetry';
import type { TopicDto } from '@ron/proto';
import type { AllTopicCounts, TopicCounts } from './mailbox/topics/topic-counts.ts';
import type { Topics } from './mailbox/topics/topics.ts';
import type { SeenKeys } from './queue/seen-keys.ts';

/** Counters that the parts update. */
export interface MailboxMeters {
  readonly integrity: Counter<'reason'>;
  readonly compacted_bytes: Counter<never>;
}

export function mailboxMeters(metrics: Metrics): MailboxMeters {
  return {
    integrity: metrics.counter('integrity_fail_total', 'Damaged messages, and ledgers that do not balance.', {
      reason: ['ledger', 'damaged'],
    }),
    compacted_bytes: metrics.counter('mailbox_compacted_bytes_total', 'Bytes of segments that compaction removed.'),
  };
}

export interface MeasuredParts {
  /** Those that exist. */
  readonly measured: () => readonly Pick<TopicDto, 'topic' | 'ledger' | 'oldest_s'>[];
  readonly topics: Topics;
  readonly seen: SeenKeys;
}

/** Values that are read from their owner at a scrape. */
export function measureParts(metrics: Metrics, { measured, topics, seen }: MeasuredParts): void {
  const { counts } = topics;
  metrics.gaugeFrom('mailbox_messages', 'Messages, by topic and state.', ['topic', 'state'], () =>
    measured().flatMap(({ topic, ledger: { ready, delayed, leased, dead } }) =>
      byLabel(counts.of(topic).label, 'state', { ready, delayed, leased, dead }),
    ),
  );
  metrics.gaugeFrom('mailbox_oldest_seconds', 'Age of the oldest waiting message, by topic.', ['topic'], () =>
    oldest(measured(), counts),
  );
  measureCounts(metrics, counts);
  metrics.counterFrom(
    'mailbox_seen_evicted_total',
    'Idempotency keys that were forgotten before the end of their window, by topic.',
    ['topic'],
    () => topics.all().map((topic) => ({ labels: { topic: topic.counts.label }, value: seen.evicted(topic.state) })),
  );
}

function measureCounts(metrics: Metrics, counts: AllTopicCounts): void {
  const from = (name: string, help: string, label: string, values: (each: TopicCounts) => Record<string, number>) =>
    metrics.counterFrom(name, help, ['topic', label], () =>
      perTopic(counts, (topic, each) => byLabel(topic, label, values(each))),
    );
  from('mailbox_sent_total', 'Sent messages, by topic and result.', 'result', ({ sent }) => sent);
  from(
    'mailbox_settled_total',
    'Ended deliveries and settled messages, by topic and outcome.',
    'outcome',
    ({ settled }) => settled,
  );
  from(
    'mailbox_stale_total',
    'Tokens of earlier deliveries or settled messages, by topic and call.',
    'op',
    ({ stale }) => stale,
  );
  metrics.counterFrom(
    'mailbox_redelivered_total',
    'Deliveries after the first one of a message, by topic.',
    ['topic'],
    () => perTopic(counts, (topic, { redelivered }) => [{ labels: { topic }, value: redelivered }]),
  );
  metrics.counterFrom(
    'mailbox_dead_dropped_total',
    'Dead letters that the limits of their topic dropped, by limit.',
    ['reason'],
    () =>
      perTopic(counts, (_topic, { dropped }) =>
        Object.entries(dropped).map(([reason, value]) => ({ labels: { reason }, value })),
      ),
  );
}

function perTopic(
  counts: AllTopicCounts,
  samples: (label: string, counts: TopicCounts) => readonly Sample[],
): Sample[] {
  const all = [...[...counts.entries()].map(([, each]) => each), counts.others];
  return all.flatMap((each) => samples(each.label, each));
}

const byLabel = (topic: string, label: string, values: Readonly<Record<string, number>>): Sample[] =>
  Object.entries(values).map(([name, value]) => ({ labels: { topic, [label]: name }, value }));

/** The oldest of all topics that share a label. */
function oldest(topics: ReturnType<MeasuredParts['measured']>, counts: AllTopicCounts): Sample[] {
  const ages = new Map<string, number>();
  for (const { topic, oldest_s } of topics) {
    const { label } = counts.of(topic);
    ages.set(label, Math.max(ages.get(label) ?? 0, oldest_s ?? 0));
  }
  return [...ages].map(([topic, value]) => ({ labels: { topic }, value }));
}
