/**
 * Counts settlements, and logs dead letters that were made, replayed or deleted.
 *
 * Contract: one event for all messages of a topic that one append made dead letters for one reason, or removed. So a call
 * with many messages does not crowd out other events.
 * Bound: `LOGGED` messages are named in an event; the ids of `READS_MAX` events are read from the log at a time. Beyond, an
 * event names messages by their numbers.
 */
import { NEVER } from '@ron/kernel';
import { formatUlid, type DeadReason } from '@ron/proto';
import type { MailboxEvent } from '../../events.ts';
import type { BackgroundWrites } from '../background-writes.ts';
import type { MessageReads } from '../receive/message-reads.ts';
import type { Settlement, SettledBy } from './settling.ts';
import type { Outcome } from '../topics/topic-counts.ts';
import type { Topic } from '../topics/topics.ts';

const READS_MAX = 16;
const LOGGED = 8;

export interface SettledEventsInit {
  readonly reads: Pick<MessageReads, 'readMeta'>;
  readonly background: BackgroundWrites;
  readonly onEvent: (event: MailboxEvent) => void;
  /** A message was found to be damaged. */
  readonly onDamaged: () => void;
}

const REMOVED: Partial<Record<SettledBy, Outcome>> = { replay: 'replayed', delete: 'deleted', drop: 'dropped' };

/** Messages of one event. */
interface Group<C> {
  readonly topic: string;
  readonly cause: C;
  count: number;
  /** The first ones. */
  readonly seqs: number[];
}

type Groups<C> = Map<string, Group<C>>;

export class SettledEvents {
  readonly #init: SettledEventsInit;
  readonly #dead: Groups<DeadReason> = new Map();
  readonly #removed: Groups<'replay' | 'delete'> = new Map();
  #reads = 0;

  constructor(init: SettledEventsInit) {
    this.#init = init;
  }

  /** In the step of the sync. */
  onSettlement(topic: Topic, { entry, by }: Settlement): void {
    if (entry.outcome === 'acked') return topic.counts.countAcked();
    if (entry.outcome === 'removed') {
      topic.counts.settled[REMOVED[by] ?? 'deleted'] += 1;
      // Retention logs the letters that it drops, with the limit.
      if (by === 'replay' || by === 'delete') join(this.#removed, topic.name, by, entry.seq);
      return;
    }
    topic.counts.settled.dead += 1;
    // A nack that makes a dead letter has ended a delivery as well.
    if (by === 'nack') topic.counts.settled.nacked += 1;
    if (entry.reason === 'damaged') this.#init.onDamaged();
    join(this.#dead, topic.name, entry.reason, entry.seq);
  }

  /** After the last settlement of an append. */
  publish(): void {
    for (const group of taken(this.#dead)) this.#publishDead(group);
    for (const { topic, cause, count, seqs } of taken(this.#removed))
      this.#init.onEvent({ kind: 'dead letters removed', topic, by: cause, count, seqs });
  }

  #publishDead({ topic, cause, count, seqs }: Group<DeadReason>): void {
    const { background, onEvent } = this.#init;
    const publish = (ids: readonly string[]): void => {
      onEvent({ kind: 'messages are dead', topic, reason: cause, count, ids });
      if (cause !== 'damaged') return;
      for (const [index, seq] of seqs.entries()) onEvent({ kind: 'message damaged', topic, id: ids[index]!, seq });
    };
    if (this.#reads >= READS_MAX) return publish(seqs.map(nameOf));
    this.#reads += 1;
    background.run(async () => {
      const ids = await Promise.all(seqs.map((seq) => this.#idOf(seq)));
      this.#reads -= 1;
      publish(ids);
    });
  }

  async #idOf(seq: number): Promise<string> {
    const read = await this.#init.reads.readMeta(seq, NEVER).catch(() => undefined);
    return read === undefined ? nameOf(seq) : formatUlid(read.id);
  }
}

/** For a message whose id cannot be read. */
const nameOf = (seq: number): string => `seq ${seq}`;

function join<C extends string>(groups: Groups<C>, topic: string, cause: C, seq: number): void {
  const key = `${topic} ${cause}`;
  const group = groups.get(key) ?? { topic, cause, count: 0, seqs: [] };
  groups.set(key, group);
  group.count += 1;
  if (group.seqs.length < LOGGED) group.seqs.push(seq);
}

function taken<C>(groups: Groups<C>): readonly Group<C>[] {
  const all = [...groups.values()];
  groups.clear();
  return all;
}
