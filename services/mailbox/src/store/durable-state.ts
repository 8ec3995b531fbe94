/**
 * Applies records to the ledger and the target when a sync has made them durable.
 *
 * Contract: every durable record is applied once, in log order, in the synchronous step of the sync. So the ledger totals, the
 * state of the target and the records on disk agree at every moment, and `base` is computed from exactly the records before it.
 */
import type { Appended, DurableRecord, RecordInput } from '@ron/log';
import { encodeBase, encodeSettled } from './codec/entry-codec.ts';
import { markId } from './codec/message-codec.ts';
import { countSettled } from './ledger/held-differences.ts';
import { RECORD, type RecordTarget, type SettledEntry } from './records.ts';
import type { LedgerTopics } from './ledger/ledger-topics.ts';

/** The context of a record: called with its place once it is durable. */
export type Apply = (place: Appended) => void;

export class DurableState {
  readonly topics: LedgerTopics;
  readonly target: RecordTarget;
  /** The number of the last durable record. */
  seq_last = 0;
  /** Segments with `seen` records. */
  readonly key_segments: Set<number>;

  constructor(topics: LedgerTopics, key_segments: Set<number>, target: RecordTarget) {
    this.topics = topics;
    this.key_segments = key_segments;
    this.target = target;
  }

  readonly onDurable = (records: readonly DurableRecord[], places: readonly Appended[]): void => {
    for (let index = 0; index < records.length; index++) {
      const place = places[index]!;
      if (place.seq > this.seq_last) this.seq_last = place.seq;
      if (records[index]!.type === RECORD.seen) this.key_segments.add(place.segment);
      (records[index]!.context as Apply | undefined)?.(place);
    }
    this.target.onEnd?.();
  };

  /** The record of settlements, which are applied once it is durable. */
  settled(entries: readonly SettledEntry[], onApplied?: () => void): RecordInput {
    const context: Apply = (place) => {
      onApplied?.();
      for (const { topic, outcome } of entries) countSettled(this.topics.get(topic)!, outcome);
      this.target.onSettled(entries, place);
    };
    const payload = encodeSettled(entries, this.topics.numberOf);
    return { type: RECORD.settled, id: markId(this.seq_last), payload, context };
  }

  /** [mailbox I-8] The totals survive the removal of the segments that they were counted in. */
  readonly firstRecords = (): readonly RecordInput[] => {
    const payload = encodeBase(this.topics.base(this.seq_last));
    return [{ type: RECORD.base, id: markId(this.seq_last), payload }];
  };
}
