/**
 * Counters of each topic for metrics and rates, since the start of the process. The ledger is not among them: its totals
 * are part of the durable state.
 *
 * Contract: counting has no cost besides an addition; metrics read the counters at a scrape.
 * Bound: one entry for each topic that exists, and one for all refused names. `LABELS_MAX` topics have a label of their own;
 * the others, and all refused names, share `other`. A topic keeps its label.
 */
import { RollingWindow } from '@ron/kernel';
import type { DropReason } from '@ron/proto';

const SENT_RESULTS = ['stored', 'duplicate', 'conflict', 'full', 'topic', 'failed'] as const;
type SentResult = (typeof SENT_RESULTS)[number];
const OUTCOMES = ['acked', 'nacked', 'timeout', 'dead', 'replayed', 'deleted', 'dropped'] as const;
export type Outcome = (typeof OUTCOMES)[number];
const TOKEN_OPS = ['ack', 'nack', 'extend'] as const;
export type TokenOp = (typeof TOKEN_OPS)[number];
const DROP_REASONS = ['age', 'count', 'bytes'] as const satisfies readonly DropReason[];

const LABELS_MAX = 64;
const OTHER = 'other';
const MINUTE_MS = 60_000;
const SENT = 0;
const ACKED = 1;

const zeros = <K extends string>(keys: readonly K[]): Record<K, number> =>
  Object.fromEntries(keys.map((key) => [key, 0])) as Record<K, number>;

export class TopicCounts {
  /** Of its series. */
  readonly label: string;
  readonly sent = zeros(SENT_RESULTS);
  readonly settled = zeros(OUTCOMES);
  readonly stale = zeros(TOKEN_OPS);
  readonly dropped = zeros(DROP_REASONS);
  redelivered = 0;
  readonly #window = new RollingWindow({ window_ms: MINUTE_MS });

  constructor(label: string) {
    this.label = label;
  }

  countSent(result: SentResult): void {
    this.sent[result] += 1;
    if (result === 'stored') this.#window.add(SENT);
  }

  countAcked(): void {
    this.settled.acked += 1;
    this.#window.add(ACKED);
  }

  /** Means of the last minute. */
  get rates(): { readonly sent_per_s: number; readonly acked_per_s: number } {
    const seconds = MINUTE_MS / 1000;
    return { sent_per_s: this.#window.total(SENT) / seconds, acked_per_s: this.#window.total(ACKED) / seconds };
  }
}

export class AllTopicCounts {
  readonly #byTopic = new Map<string, TopicCounts>();
  /** For names that are not topics. */
  readonly others = new TopicCounts(OTHER);
  /** Topics that have a label of their own. */
  readonly #labelled = new Set<string>();

  /** Of a topic that exists; the state bounds their number. */
  of(topic: string): TopicCounts {
    const known = this.#byTopic.get(topic);
    if (known !== undefined) return known;
    if (this.#labelled.size < LABELS_MAX) this.#labelled.add(topic);
    const counts = new TopicCounts(this.#labelled.has(topic) ? topic : OTHER);
    this.#byTopic.set(topic, counts);
    return counts;
  }

  /** The topic was never created: its refused sends stay counted, for all such names. */
  forget(topic: string): void {
    for (const [result, count] of Object.entries(this.of(topic).sent)) this.others.sent[result as SentResult] += count;
    this.#byTopic.delete(topic);
    this.#labelled.delete(topic);
  }

  entries(): Iterable<[string, TopicCounts]> {
    return this.#byTopic;
  }
}
