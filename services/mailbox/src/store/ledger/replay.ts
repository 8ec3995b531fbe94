/**
 * Replays the records of a log: counts the ledger, finds missing and damaged records, and reports the rest to a target.
 *
 * Contract: records arrive in log order, from the oldest segment on. No record makes it throw: one that cannot be understood
 * is a problem of the ledger. A message with a damaged body is reported as such and counts as sent. Totals are counted from
 * each `base` to the next one and compared there. An `accepted` record excuses the problems that it lists.
 * Bound: as in problems.ts and sequence.ts; `damaged` has one entry for each waiting message with a damaged body.
 */
import type { Position, RecordHead } from '@ron/log';
import { MalformedRecord, orDamaged } from '../codec/bytes.ts';
import {
  decodeAccepted,
  decodeBase,
  decodeLeased,
  decodeReturned,
  decodeSeen,
  decodeSettled,
  decodeTopic,
} from '../codec/entry-codec.ts';
import {
  decodeMessageId,
  DecodedMeta,
  isMetaIntact,
  lostMeta,
  markIn,
  type MessageId,
} from '../codec/message-codec.ts';
import { countSettled, heldDifferences } from './held-differences.ts';
import { Problems, type LedgerProblem } from './problems.ts';
import {
  RECORD,
  type AcceptedEntry,
  type BaseEntry,
  type HeldCounts,
  type MessageEntry,
  type MessageMeta,
  type MessagePlace,
  type MessageState,
  type RecordTarget,
  type SettledEntry,
  type TopicEntry,
} from '../records.ts';
import { rangeText, Sequence } from './sequence.ts';
import { LedgerTopics, type TopicRow } from './ledger-topics.ts';

/** Problems of one replay before they are listed; more are counted. */
const FOUND_MAX = 1024;

export interface DamagedMessage {
  readonly topic: string;
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
}

export interface ReplayEnd {
  readonly problem: LedgerProblem | undefined;
  /** Records that a power failure lost before any sync covered them. Not a problem, but their numbers stay missing. */
  readonly unsynced: readonly string[];
}

export class Replay {
  readonly topics = new LedgerTopics();
  readonly sequence = new Sequence();
  /** Waiting messages with a damaged body, by number. */
  readonly damaged = new Map<number, DamagedMessage>();
  /** Segments with `seen` records. */
  readonly key_segments = new Set<number>();
  records = 0;
  /** When the newest record was first appended, in seconds of Unix time. */
  newest_s = 0;
  /** Messages with a damaged body. */
  damaged_bodies = 0;
  readonly #target: RecordTarget;
  #found: string[] = [];
  #found_more = 0;
  readonly #excused = new Set<string>();
  #segment: number | undefined;

  constructor(target: RecordTarget) {
    this.#target = target;
  }

  readonly onRecord = (head: RecordHead, position: Position, body: Buffer): void => {
    this.records += 1;
    if (head.time_s > this.newest_s) this.newest_s = head.time_s;
    if (position.segment !== this.#segment) this.#beginSegment(head, position);
    try {
      if (head.type === RECORD.message) this.#message(head, position, body);
      else this.#entry(head, position, body);
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error;
      this.#problem(`record ${head.seq} is malformed`);
    }
  };

  /** Keeps messages, which become dead letters, and leases, which a power failure may lose too. */
  readonly onBadBody = (head: RecordHead, position: Position, body: Buffer): boolean => {
    if (head.type === RECORD.leased || head.type === RECORD.returned) {
      this.#number(head);
      return true;
    }
    const id = head.type === RECORD.message ? decodeMessageId(head.id) : undefined;
    const row = id && this.topics.at(id.topic);
    if (id === undefined || row === undefined) return false;
    const meta = body.subarray(head.payload_bytes);
    this.#damagedMessage(head, position, id, row, isMetaIntact(id, meta) ? meta : undefined);
    return true;
  };

  /** Compares the records with the end mark, and the totals with the messages that the target holds now. Called once. */
  end(held: Iterable<HeldCounts>, end_mark: number): ReplayEnd {
    this.sequence.end(end_mark);
    const { durable, unsynced } = this.sequence.missing();
    const problems = new Problems();
    const add = (item: string): void => {
      if (!this.#excused.has(item)) problems.add(item);
    };
    for (const range of durable) add(rangeText(range));
    for (const item of this.#found) add(item);
    if (this.#found_more > 0) add(`${this.#found_more} more problems`);
    // Never excused: an accepted loss has corrected the totals, so this is another one.
    for (const item of heldDifferences(this.topics, held)) problems.add(item);
    const lost = unsynced.map(rangeText).filter((item) => !this.#excused.has(item));
    return { problem: problems.report(), unsynced: lost };
  }

  reportTotals(): void {
    for (const { topic, sent, acked, dead, gone } of this.topics.all()) {
      this.#target.onTotals(topic, { sent, acked, dead, gone });
    }
  }

  #beginSegment(head: RecordHead, { segment }: Position): void {
    this.#segment = segment;
    if (head.type !== RECORD.base) this.#problem(`segment ${segment} has no base before record ${head.seq}`);
  }

  #problem(item: string): void {
    if (this.#found.length < FOUND_MAX) this.#found.push(item);
    else this.#found_more += 1;
  }

  /** Checks the number of a record that is not a moved message. */
  #number(head: RecordHead, mark = markIn(head.id)): void {
    if (mark === undefined) throw new MalformedRecord('the id of the record has a wrong length');
    if (!this.sequence.next(head.seq, mark)) this.#problem(`record ${head.seq} is out of order`);
  }

  #message(head: RecordHead, position: Position, body: Buffer): void {
    const { seq, payload_bytes, meta_bytes } = head;
    const id = decodeMessageId(head.id);
    if (id === undefined) throw new MalformedRecord('the id of the message is malformed');
    if (id.isMoved) this.sequence.moved(id.mark);
    else this.#number(head, id.mark);
    const row = this.topics.at(id.topic);
    if (row === undefined) throw new MalformedRecord('the topic of the message is unknown');
    const meta = new DecodedMeta(row.topic, body, payload_bytes);
    if (id.isMoved !== (meta.state !== undefined)) throw new MalformedRecord('the state of the message is malformed');
    if (!id.isMoved) row.sent += 1;
    const place = { segment: position.segment, offset: position.offset, payload_bytes, meta_bytes };
    this.#target.onMessage(new ReplayedMessage(seq, id, place, meta));
    // A damaged copy of it was found before.
    if (id.isMoved && this.damaged.size > 0) this.damaged.delete(seq);
    if (meta.replaces !== undefined && !id.isMoved) this.#replaced(row, meta.replaces, position);
  }

  #damagedMessage(head: RecordHead, position: Position, id: MessageId, row: TopicRow, bytes: Buffer | undefined): void {
    const { seq, payload_bytes, meta_bytes } = head;
    this.records += 1;
    this.damaged_bodies += 1;
    if (id.isMoved) this.sequence.moved(id.mark);
    else if (!this.sequence.next(seq, id.mark)) this.#problem(`record ${seq} is out of order`);
    if (!id.isMoved) row.sent += 1;
    const decoded = bytes && orDamaged(() => new DecodedMeta(row.topic, bytes));
    const meta: MessageMeta = decoded ?? lostMeta(row.topic, head.time_s * 1000);
    const moved = id.isMoved ? (decoded?.state ?? lostState(id.isDead, head.time_s * 1000)) : undefined;
    const place = { segment: position.segment, offset: position.offset, payload_bytes, meta_bytes };
    // A crash between a move and the removal of its segment leaves two copies, of which one suffices.
    const isCopy = id.isMoved && this.#target.holds(seq);
    this.#target.onMessage({ seq, id: id.ulid, place, meta, moved, isDamaged: true, source: undefined });
    if (moved?.dead === undefined && !isCopy) this.damaged.set(seq, { topic: row.topic, id: id.ulid });
    if (decoded?.replaces !== undefined && !id.isMoved) this.#replaced(row, decoded.replaces, position);
  }

  /** A message that replays a dead letter removes it. */
  #replaced(row: TopicRow, seq: number, position: Position): void {
    countSettled(row, 'removed');
    this.#target.onSettled([{ outcome: 'removed', seq, topic: row.topic }], position);
  }

  #entry(head: RecordHead, position: Position, payload: Buffer): void {
    if (head.type === RECORD.base) return this.#base(head, decodeBase(payload));
    this.#number(head);
    switch (head.type) {
      case RECORD.leased:
        return this.#target.onLeased(decodeLeased(payload));
      case RECORD.returned:
        return this.#target.onReturned(decodeReturned(payload));
      case RECORD.settled:
        return this.#settled(decodeSettled(payload, this.topics.nameOf), position);
      case RECORD.topic:
        return this.#topic(decodeTopic(payload));
      case RECORD.seen:
        this.key_segments.add(position.segment);
        return this.#target.onSeen(decodeSeen(payload, this.topics.nameOf));
      case RECORD.accepted:
        return this.#accepted(decodeAccepted(payload));
      case RECORD.probe:
        return undefined;
      default:
        throw new MalformedRecord(`unknown type ${head.type}`);
    }
  }

  #topic(entry: TopicEntry): void {
    if (entry.isNew && this.topics.get(entry.topic)?.number === entry.number) return;
    const { topic, policy } = this.topics.put(entry);
    this.#target.onTopic(topic, policy);
  }

  #settled(entries: readonly SettledEntry[], position: Position): void {
    for (const { topic, outcome, seq } of entries) {
      countSettled(this.topics.get(topic)!, outcome);
      if (this.damaged.size > 0) this.damaged.delete(seq);
    }
    this.#target.onSettled(entries, position);
  }

  /** The totals of a `base` replace the counted ones. The first one of the log has none to compare with. */
  #base(head: RecordHead, base: BaseEntry): void {
    const isFirst = this.sequence.last === undefined;
    if (!this.sequence.base(head.seq, base.seq_before)) this.#problem(`record ${head.seq} is out of order`);
    const known = new Set(this.topics.all());
    for (const stated of base.topics) {
      const row = this.topics.put(stated);
      known.delete(row);
      const difference = isFirst ? undefined : LedgerTopics.difference(row.topic, row, stated.totals);
      if (difference !== undefined) this.#problem(`${difference} at record ${head.seq}`);
      this.topics.setTotals(row.number, stated.totals);
      this.#target.onTopic(row.topic, row.policy);
    }
    for (const { topic } of known) this.#problem(`topic ${topic} is not in the base, record ${head.seq}`);
  }

  #accepted({ problems, isAll, totals }: AcceptedEntry): void {
    for (const problem of problems) this.#excused.add(problem);
    if (isAll) {
      for (const item of this.#found) this.#excused.add(item);
      const { durable, unsynced } = this.sequence.missing();
      for (const range of [...durable, ...unsynced]) this.#excused.add(rangeText(range));
      [this.#found, this.#found_more] = [[], 0];
    }
    for (const each of totals) this.topics.setTotals(each.number, each.totals);
  }
}

/** An intact message. Few of them need their id. */
class ReplayedMessage implements MessageEntry {
  readonly seq: number;
  readonly place: MessagePlace;
  readonly meta: DecodedMeta;
  readonly source = undefined;
  readonly isDamaged = false;
  readonly #id: MessageId;

  constructor(seq: number, id: MessageId, place: MessagePlace, meta: DecodedMeta) {
    this.seq = seq;
    this.#id = id;
    this.place = place;
    this.meta = meta;
  }

  get id(): Uint8Array {
    return this.#id.ulid;
  }

  get moved(): MessageState | undefined {
    return this.meta.state;
  }
}

const lostState = (isDead: boolean, time_ms: number): MessageState => ({
  delivery: 0,
  attempts: 0,
  nonce: 0,
  until_ms: 0,
  visibility_ms: 0,
  not_before_ms: 0,
  error: undefined,
  dead: isDead ? { reason: 'damaged', dead_ms: time_ms } : undefined,
});
