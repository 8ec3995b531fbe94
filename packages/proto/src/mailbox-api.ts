/** The requests and answers of mailbox, and their limits. */

const KIB = 1024;
const MIB = 1024 * KIB;
const SECOND_MS = 1000;
const HOUR_MS = 3600 * SECOND_MS;

export const MAILBOX_LIMITS = {
  /** Messages of a send, messages of a receive, tokens of an ack, nack or extend. */
  batch_messages: 128,
  /** The body of `POST /send`. */
  batch_bytes: 2 * MIB,
  message_bytes: MIB,
  headers: 32,
  /** Names and values together. */
  headers_bytes: 8 * KIB,
  /** Of the disk, at most half of it. Two small segments: compaction moves one before it frees one. */
  reserve_bytes_min: 8 * MIB,
  reserve_bytes_max: 256 * MIB,
  topics: 256,
  topic_chars: 64,
  /** Of `key` and `idempotency_key`, in UTF-8. */
  key_bytes: 256,
  delay_ms: 24 * HOUR_MS,
  visibility_ms_min: SECOND_MS,
  visibility_ms_max: 12 * HOUR_MS,
  visibility_ms_default: 30 * SECOND_MS,
  wait_ms: 20 * SECOND_MS,
  receive_bytes_default: MIB,
  receive_bytes_max: 8 * MIB,
  /** Of the error that a nack states, in UTF-8; longer ones are cut. */
  error_bytes: KIB,
  /** Dead letters or messages in one page. */
  page: 128,
} as const;

/** Not `send`, which is a route. */
export const TOPIC_PATTERN = '^(?!send$)[a-z0-9_]+(?:\\.[a-z0-9_]+)*$';
const TOPIC = new RegExp(TOPIC_PATTERN);

export function isTopic(name: unknown): name is string {
  return typeof name === 'string' && name.length <= MAILBOX_LIMITS.topic_chars && TOPIC.test(name);
}

/** The value that a capability's `name` caveat is compared with: `name ^= hooks.git/` must not open `hooks.github`. */
export const topicFact = (topic: string): string => `${topic}/`;

/** A message to send. */
export interface OutgoingMessage {
  readonly topic: string;
  /** A ULID. Default: made by mailbox. A label only: it need not be unique. */
  readonly id?: string;
  /** Messages of one key are delivered one at a time and in order. */
  readonly key?: string;
  readonly idempotency_key?: string;
  readonly delay_ms?: number;
  /** Lower-case names. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly payload: Uint8Array;
}

/** How the messages of one call are sent. */
export interface SendOptions {
  /** The messages of a topic keep the order of the call: those behind one that is refused as `full` or `topic` are refused too. */
  readonly ordered?: boolean;
}

/** `conflict`: the idempotency key belongs to a message with another body. `full`: the topic is full. `topic`: it does not exist, and cannot be created. */
export type SendError = 'conflict' | 'full' | 'topic';

export type SendResult =
  | { readonly id: string; readonly seq: number; readonly duplicate: boolean; readonly b3: string }
  | {
      readonly error: SendError;
      /** With `conflict`: the first message. */
      readonly id?: string;
      readonly detail: string;
      /** With `full`: the message never fits its topic. */
      readonly retryable?: false;
    };

export interface ReceiveRequest {
  /** Default 1. */
  readonly max?: number;
  readonly visibility_ms?: number;
  /** Default 0. */
  readonly wait_ms?: number;
  /** Payload bytes of the answer. One message always fits. */
  readonly bytes_max?: number;
}

export interface ReceivedMessage {
  readonly id: string;
  readonly seq: number;
  /** The number of this delivery of the message, from 1. */
  readonly delivery: number;
  /** For ack, nack and extend. */
  readonly token: string;
  /** Deliveries that count against `max_deliveries`, with this one. */
  readonly attempts: number;
  readonly sent_ms: number;
  readonly key?: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The id of the dead letter that this message replays. */
  readonly replay_of?: string;
  /** `b3:<hex>` of the payload. */
  readonly b3: string;
  readonly payload: Uint8Array;
}

/** `stale`: the token is not for the latest delivery, or the message is gone. `unknown`: not a token of this topic. */
export type TokenResult = 'ok' | 'stale' | 'unknown';

export interface NackRequest {
  /** Default: a random backoff that grows with the attempts. */
  readonly delay_ms?: number;
  /** Kept with a dead letter. */
  readonly error?: string;
  /** Turns the messages into dead letters now. */
  readonly dead?: boolean;
}

/** Why a message became a dead letter. */
export type DeadReason = 'max_deliveries' | 'nacked' | 'expired' | 'damaged';

/** Why dead letters were dropped. */
export type DropReason = 'age' | 'count' | 'bytes';

export interface TopicPolicy {
  readonly max_messages: number;
  readonly max_bytes: number;
  readonly max_age_ms: number;
  readonly max_deliveries: number;
  readonly window_ms: number;
  readonly dead_max_age_ms: number;
  readonly dead_max_messages: number;
  readonly dead_max_bytes: number;
}

/** `sent = acked + ready + delayed + leased + dead + gone` at every moment. */
export interface TopicLedger {
  readonly sent: number;
  readonly acked: number;
  /** Visible ones, and those behind an earlier message of their key. */
  readonly ready: number;
  readonly delayed: number;
  readonly leased: number;
  readonly dead: number;
  /** Dead letters that were replayed, deleted or dropped. */
  readonly gone: number;
}

export interface TopicDto {
  readonly topic: string;
  readonly ledger: TopicLedger;
  /** Payload bytes of waiting messages. */
  readonly bytes: number;
  readonly dead_bytes: number;
  /** Seconds since the oldest waiting message was sent; null if none waits. */
  readonly oldest_s: number | null;
  /** Means of the last minute. */
  readonly sent_per_s: number;
  readonly acked_per_s: number;
  readonly policy: TopicPolicy;
  /** The fields that were set for this topic; the others follow the configuration. */
  readonly policy_set: readonly (keyof TopicPolicy)[];
  /** How long a new idempotency key is remembered now: shorter than the policy's window when there are too many. */
  readonly window_ms: number;
  /** Remembered idempotency keys. */
  readonly keys: number;
}

export interface DeadLetterDto {
  readonly id: string;
  readonly seq: number;
  readonly reason: DeadReason;
  readonly attempts: number;
  readonly error?: string;
  readonly key?: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly b3: string;
  readonly bytes: number;
  /** When it was sent, and when it became a dead letter (Unix ms). */
  readonly sent_ms: number;
  readonly dead_ms: number;
}

export interface DeadPageDto {
  readonly dead: readonly DeadLetterDto[];
  /** Pass it as `after` for the next page; absent at the end. */
  readonly next?: number;
}

/** Which dead letters to replay or delete: those of `seqs`, or the oldest. */
export interface DeadSelection {
  readonly seqs?: readonly number[];
  /** At most this many. Default: a page. */
  readonly limit?: number;
}

export interface ReplayedDto {
  readonly replayed: number;
  /** Dead letters that the topic still has. */
  readonly left: number;
}

export interface DeletedDto {
  readonly deleted: number;
  readonly left: number;
}

/** A message that `peek` shows: nothing leases it, so it has no token. */
export type PeekedMessage = Omit<ReceivedMessage, 'token'>;
