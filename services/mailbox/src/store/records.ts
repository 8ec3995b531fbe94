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
} as const;

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
}

/** The end of a lease by a nack. Not synced. */
export interface ReturnEntry {
  readonly seq: number;
  readonly delivery: number;
  /** Unix ms. */
  readonly not_before_ms: number;
  readonly error: string | undefined;
}

/** `acked` and `dead` end the wait of a message, `removed` that of a dead letter (the page calls the age out `expired`: a dead letter with that reason). */
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

/** The totals of a topic that cannot be counted from the messages that the log still has. */
export interface TopicTotals {
  readonly sent: number;
  readonly acked: number;
  readonly dead: number;
  readonly gone: number;
}

/** First record of each segment: everything that would be lost with the segments before it. */
export interface BaseEntry {
  /** The number of the first record after it that is not a moved message. */
  readonly next_seq: number;
  readonly topics: readonly {
    readonly topic: string;
    /** Fields that were set for the topic. */
    readonly policy: Partial<TopicPolicy>;
    readonly totals: TopicTotals;
  }[];
}

/** An idempotency key of a removed segment. */
export interface SeenEntry {
  readonly topic: string;
  /** The first 16 bytes of the hash of topic and key. */
  readonly hash: Uint8Array;
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
  readonly seq: number;
  /** The first 16 bytes of the BLAKE3 of the payload. */
  readonly b3: Uint8Array;
  /** When the key is forgotten (Unix ms). */
  readonly until_ms: number;
}

/**
 * Receives records in log order: at a start all of them, later those that a sync has made durable, in the synchronous step of
 * the sync. Leases and returns are applied by the caller that appends them, so only a start reports them.
 */
export interface RecordTarget {
  onBase(entry: BaseEntry): void;
  onTopic(topic: string, policy: Partial<TopicPolicy>): void;
  /** `isMoved`: the message is known, or was sent before the oldest segment; only its place is new. */
  onMessage(message: {
    readonly seq: number;
    readonly id: Uint8Array;
    readonly place: MessagePlace;
    readonly meta: MessageMeta;
    readonly isMoved: boolean;
  }): void;
  onLeased(entries: readonly LeaseEntry[]): void;
  onReturned(entries: readonly ReturnEntry[]): void;
  onSettled(entries: readonly SettledEntry[], at: Position): void;
  onSeen(entries: readonly SeenEntry[]): void;
}
