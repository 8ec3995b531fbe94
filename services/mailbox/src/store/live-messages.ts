/**
 * The view of the messages in RAM that compaction needs. All calls are synchronous and change nothing, except `damaged`.
 */
import type { Position } from '@ron/log';
import type { DeadReason } from '@ron/proto';
import type { SeenEntry } from './records.ts';

/** The state of a message in RAM, as in `MessageState`. */
export interface HeldMessage {
  readonly kind: 'held';
  readonly place: Position;
  readonly delivery: number;
  readonly attempts: number;
  readonly nonce: number;
  /** Unix ms; 0 if it is not leased. */
  readonly until_ms: number;
  readonly visibility_ms: number;
  /** Unix ms; 0 if it is not delayed. */
  readonly not_before_ms: number;
  /** The last error that a nack stated, if it is kept in RAM. */
  readonly error: string | undefined;
  /** Of a dead letter; `at`: the record that holds its last error, see `MessageReader.readDead`. */
  readonly dead: { readonly reason: DeadReason; readonly dead_ms: number; readonly at: Position } | undefined;
}

/** An ack, a dead letter or a removal of the message is syncing. */
export interface SettlingMessage {
  readonly kind: 'settling';
  /** Resolves when the sync has ended, with either outcome. */
  ended(): Promise<void>;
}

/** `gone`: acknowledged, removed, or never known. */
export type Liveness = { readonly kind: 'gone' } | SettlingMessage | HeldMessage;

export interface LiveMessages {
  find(seq: number): Liveness;
  /** Bytes on disk (`recordBytes`) of the messages in RAM whose place is in a segment; settling ones included. */
  liveBytesOf(segment: number): number;
  /** The same for all segments. */
  readonly live_bytes: number;
  /** The remembered idempotency key of a message, if it is still in the window. */
  seenOf(topic: string, idempotency_key: string, seq: number): SeenEntry | undefined;
  /** Whether an entry of a `seen` record is still remembered. */
  isSeen(entry: SeenEntry): boolean;
  /** Remembered idempotency keys. */
  readonly seen_keys: number;
  /** The body of a message is damaged: turns it into a dead letter, durably. Does nothing if it is gone or dead already. */
  damaged(seq: number, signal: AbortSignal): Promise<void>;
}
