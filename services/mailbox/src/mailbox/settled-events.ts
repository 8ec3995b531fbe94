/**
 * Counts settlements and reports new dead letters.
 *
 * Bound: `READS_MAX` ids are read from the log at a time; beyond, a dead letter is reported by its number only.
 */
import { NEVER } from '@ron/kernel';
import { formatUlid } from '@ron/proto';
import type { MailboxEvent } from '../events.ts';
import type { BackgroundWrites } from './background-writes.ts';
import type { MessageReads } from './message-reads.ts';
import type { Settlement, SettledBy } from './settling.ts';
import type { Outcome } from './topic-counts.ts';
import type { Topic } from './topics.ts';

const READS_MAX = 16;

export interface SettledEventsInit {
  readonly reads: Pick<MessageReads, 'readMeta'>;
  readonly background: BackgroundWrites;
  readonly onEvent: (event: MailboxEvent) => void;
  /** A message was found to be damaged. */
  readonly onDamaged: () => void;
}

const REMOVED: Partial<Record<SettledBy, Outcome>> = { replay: 'replayed', delete: 'deleted', drop: 'dropped' };

export class SettledEvents {
  readonly #init: SettledEventsInit;
  #reads = 0;

  constructor(init: SettledEventsInit) {
    this.#init = init;
  }

  /** In the step of the sync. */
  onSettlement(topic: Topic, { entry, by }: Settlement): void {
    if (entry.outcome === 'acked') return topic.counts.countAcked();
    if (entry.outcome === 'removed') {
      topic.counts.settled[REMOVED[by] ?? 'deleted'] += 1;
      return;
    }
    // A nack that makes a dead letter has ended a delivery too.
    if (by === 'nack') topic.counts.settled.nacked += 1;
    topic.counts.settled.dead += 1;
    if (entry.reason === 'damaged') this.#init.onDamaged();
    this.#report(topic.name, entry.seq, entry.reason);
  }

  #report(topic: string, seq: number, reason: string): void {
    const { reads, background, onEvent } = this.#init;
    const publish = (id: string): void => {
      onEvent({ kind: 'message is dead', topic, id, seq, reason });
      if (reason === 'damaged') onEvent({ kind: 'message damaged', topic, id, seq });
    };
    if (this.#reads >= READS_MAX) return publish('');
    this.#reads += 1;
    background.run(async () => {
      const read = await reads.readMeta(seq, NEVER).catch(() => undefined);
      this.#reads -= 1;
      publish(read === undefined ? '' : formatUlid(read.id));
    });
  }
}
