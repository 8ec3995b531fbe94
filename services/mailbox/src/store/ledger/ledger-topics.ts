/**
 * The topics of the log: their numbers, policies and ledger totals, counted from the records.
 *
 * Contract: a number stands for one topic for the life of the log. `sent = acked + waiting + dead + gone` holds for each
 * topic by definition of `waiting`. Bound: `TOPICS_MAX` topics, which the caller's limit does not reach.
 */
import { assert } from '@ron/kernel';
import type { TopicPolicy } from '@ron/proto';
import { MalformedRecord } from '../codec/bytes.ts';
import type { BaseEntry, TopicBase, TopicTotals } from '../records.ts';

const TOPICS_MAX = 4096;

export interface TopicRow {
  readonly number: number;
  readonly topic: string;
  policy: Partial<TopicPolicy>;
  sent: number;
  acked: number;
  /** Dead letters now. */
  dead: number;
  gone: number;
}

export const waitingOf = ({ sent, acked, dead, gone }: TopicTotals): number => sent - acked - dead - gone;
const totalsOf = ({ sent, acked, dead, gone }: TopicRow): TopicTotals => ({ sent, acked, dead, gone });

export class LedgerTopics {
  readonly #rows: (TopicRow | undefined)[] = [];
  readonly #byName = new Map<string, TopicRow>();

  get(topic: string): TopicRow | undefined {
    return this.#byName.get(topic);
  }

  at(number: number): TopicRow | undefined {
    return this.#rows[number];
  }

  /** Throws `MalformedRecord` if no topic has the number. */
  readonly nameOf = (number: number): string => {
    const row = this.#rows[number];
    if (row === undefined) throw new MalformedRecord(`no topic has the number ${number}`);
    return row.topic;
  };

  /** The caller has written the topic, or writes it in the same group. */
  readonly numberOf = (topic: string): number => {
    const row = this.#byName.get(topic);
    assert(row !== undefined, 'the topic is in the log');
    return row.number;
  };

  all(): readonly TopicRow[] {
    return [...this.#byName.values()];
  }

  /** Adds a topic or replaces its policy. Throws `MalformedRecord` if the number belongs to another topic, or is too large. */
  put({ number, topic, policy }: Omit<TopicBase, 'totals'>): TopicRow {
    const known = this.#rows[number];
    const named = this.#byName.get(topic);
    if (known !== named || number >= TOPICS_MAX)
      throw new MalformedRecord(`topic ${topic} cannot have number ${number}`);
    if (known !== undefined) {
      known.policy = policy;
      return known;
    }
    const row: TopicRow = { number, topic, policy, sent: 0, acked: 0, dead: 0, gone: 0 };
    while (this.#rows.length < number) this.#rows.push(undefined);
    this.#rows[number] = row;
    this.#byName.set(topic, row);
    return row;
  }

  setTotals(number: number, totals: TopicTotals): void {
    const row = this.#rows[number];
    if (row === undefined) throw new MalformedRecord(`no topic has the number ${number}`);
    Object.assign(row, totals);
  }

  /** The `base` record of a segment that begins now. */
  base(seq_before: number): BaseEntry {
    const topics = this.all().map((row) => ({
      number: row.number,
      topic: row.topic,
      policy: row.policy,
      totals: totalsOf(row),
    }));
    return { seq_before, topics };
  }

  /** Differences between the counted totals and those of a `base`, or of the messages that are held. */
  static difference(topic: string, counted: TopicTotals, stated: TopicTotals): string | undefined {
    const fields = (['sent', 'acked', 'dead', 'gone'] as const).filter((field) => counted[field] !== stated[field]);
    if (fields.length === 0) return undefined;
    const list = fields.map((field) => `${field} ${stated[field]} (counted ${counted[field]})`);
    return `topic ${topic}: ${list.join(', ')}`;
  }
}
