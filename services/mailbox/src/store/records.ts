/**
 * The records of the log, decoded.
 *
 * A record's number in the log (`seq`) is the sequence number of its message. A message that moves keeps it.
 */
import type { Position } from '@ron/log';
import type { DeadReason, TopicPolicy } from '@ron/proto';

/** Bytes on disk: the type of a record. Values are part of the format. */
export const RECORD = {
  message: 1,
  leased: 2,
  returned: 3,
  settled: 4,
  topic: 5,
  base: 6,
  seen: 7,
  accepted: 8,
  /** Empty: written to learn whether the disk accepts writes. */
  probe: 9,
} as const;

/** Bytes on disk: the position of a reason, from 1. Values are part of the format. */
export const DEAD_REASONS: readonly DeadReason[] = ['max_deliveries', 'nacked', 'expired', 'damaged'];

/** The place of a message in the log. */
export interface MessagePlace extends Position {
  readonly payload_bytes: number;
  readonly meta_bytes: number;
}

/** Everything of a message besides its payload. */
export interface MessageMeta {
  readonly topic: string;
  readonly key: string | undefined;
  readonly idempotency_key: string | undefined;
  /** Unix ms. */
  readonly sent_ms: number;
  /** Unix ms; 0 if it was visible at once. */
  readonly not_before_ms: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly replay_of: string | undefined;
  /** BLAKE3 of the payload. */
  readonly b3: Uint8Array;
}

/** The lease of a message. Not synced. */
export interface LeaseEntry {
  readonly seq: number;
  readonly delivery: number;
  /** Deliveries that count against `max_deliveries`. */
  readonly attempts: number;
  readonly nonce: number;
  /** Unix ms. A lease that was released before its answer was written has ended when it was made. */
  readonly until_ms: number;
  /** The requested length of the lease. A start clamps the rest of the lease to 0..visibility_ms, because the wall clock may have jumped. */
  readonly visibility_ms: number;
}

/** A start after damage: the problems that were accepted, and the totals from there on. */
export interface AcceptedEntry {
  readonly at_ms: number;
  readonly reason: string;
  /** More problems than the list can hold: all before this record are accepted. */
  readonly isAll: boolean;
  readonly problems: readonly string[];
  readonly totals: readonly { readonly number: number; readonly totals: TopicTotals }[];
}

/** The end of a lease by a nack. Not synced. */
export interface ReturnEntry {
  readonly seq: number;
  readonly delivery: number;
  /** Unix ms. */
  readonly not_before_ms: number;
  /** A start clamps the rest of the delay to 0..delay_ms. */
  readonly delay_ms: number;
  readonly error: string | undefined;
}

/** `acked` and `dead` settle a waiting message, `removed` a dead letter. A message beyond `max_age` is `dead` with the reason `expired`. */
export type SettledEntry =
  | { readonly outcome: 'acked'; readonly seq: number; readonly topic: string }
  | {
      readonly outcome: 'dead';
      readonly seq: number;
      readonly topic: string;
      readonly reason: DeadReason;
      readonly attempts: number;
      readonly dead_ms: number;
      readonly error: string | undefined;
    }
  | { readonly outcome: 'removed'; readonly seq: number; readonly topic: string };

/**
 * Whether an outcome applies to a message that is held. Only a damaged log has an ack of a dead letter, or the removal of a
 * waiting message; the ledger shows it.
 */
export const isApplicable = (outcome: SettledEntry['outcome'], isDead: boolean): boolean =>
  outcome === 'dead' || isDead === (outcome === 'removed');

/** The state of a message that is neither acknowledged nor removed, written with the message when it moves. */
export interface MessageState {
  /** The latest delivery; 0 if there was none. */
  readonly delivery: number;
  readonly attempts: number;
  /** Of the latest delivery. */
  readonly nonce: number;
  /** Unix ms: the end of the lease; 0 if it is not leased. */
  readonly until_ms: number;
  /** Of the lease. */
  readonly visibility_ms: number;
  /** Unix ms: when a delayed message becomes visible; 0 if it is not delayed. */
  readonly not_before_ms: number;
  /** The last error that a nack stated. */
  readonly error: string | undefined;
  /** Only of a dead letter; then `error` is its last error. */
  readonly dead: { readonly reason: DeadReason; readonly dead_ms: number } | undefined;
}

/** The totals of a topic that cannot be counted from the messages that the log still has. */
export interface TopicTotals {
  readonly sent: number;
  readonly acked: number;
  readonly dead: number;
  readonly gone: number;
}

/** First record of each segment: everything that would be lost with the segments before it. */
export interface BaseEntry {
  /** The number of the last record before it; numbers between that and its own were lost by a failed sync and never acknowledged. */
  readonly seq_before: number;
  readonly topics: readonly TopicBase[];
}

/** The creation of a topic, or the fields that are set for it. */
export interface TopicEntry {
  readonly number: number;
  readonly topic: string;
  readonly policy: Partial<TopicPolicy>;
  /** Written with the first message; ignored if the topic exists. */
  readonly isNew: boolean;
}

export interface TopicBase {
  /** Stands for the topic in other records. */
  readonly number: number;
  readonly topic: string;
  /** Fields that were set for the topic. */
  readonly policy: Partial<TopicPolicy>;
  readonly totals: TopicTotals;
}

/** An idempotency key of a removed segment. */
export interface SeenEntry {
  readonly topic: string;
  /** The first 16 bytes of the hash of topic and key. */
  readonly hash: Uint8Array;
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
  readonly seq: number;
  /** The first 12 bytes of the BLAKE3 of the payload. */
  readonly b3: Uint8Array;
  /** When the key is forgotten (Unix ms). */
  readonly until_ms: number;
}

/** A message to append. Its payload must not change before the append has ended. */
export interface MessageInput {
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
  readonly meta: MessageMeta;
  readonly payload: Uint8Array;
}

/** A message of the log. At a start, its `meta` and `id` are valid during the call only. */
export interface MessageEntry {
  readonly seq: number;
  /** The object that was appended; undefined at a start, and of a moved message. */
  readonly source: MessageInput | undefined;
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
  readonly place: MessagePlace;
  readonly meta: MessageMeta;
  /**
   * Only of a moved message. If the message is known, only its place is new. Otherwise it was sent before the oldest
   * segment, and this is its state; it is not counted as sent. The place of a dead letter holds its reason too.
   */
  readonly moved: MessageState | undefined;
  /** Its body is damaged. The start turns it into a dead letter by a later `onSettled`. If the message is known, keep its place. */
  readonly isDamaged: boolean;
}

/**
 * Receives records in log order: at a start all of them, later those that a sync has made durable, in the synchronous step of
 * the sync. Leases and returns are applied by the caller that appends them, so only a start reports them.
 */
export interface RecordTarget {
  /** A topic exists, or has another policy; repeated for topics that are known. Always before its first message. */
  onTopic(topic: string, policy: Partial<TopicPolicy>): void;
  onMessage(message: MessageEntry): void;
  onLeased(entries: readonly LeaseEntry[]): void;
  onReturned(entries: readonly ReturnEntry[]): void;
  onSettled(entries: readonly SettledEntry[], at: Position): void;
  onSeen(entries: readonly SeenEntry[]): void;
  /** All records of a group were reported. Only after the start, in the step of the sync. */
  onEnd?(): void;
  /** Whether the message is held: not acknowledged, not removed. */
  holds(seq: number): boolean;
  /** At the end of a start: the totals by the records. */
  onTotals(topic: string, totals: TopicTotals): void;
  /** The messages of each topic that are held now, settling ones included. Topics without any may be left out. */
  counts(): Iterable<HeldCounts>;
}

/** Messages of a topic in RAM. */
export interface HeldCounts {
  readonly topic: string;
  /** Ready, delayed and leased ones. */
  readonly waiting: number;
  readonly dead: number;
}
