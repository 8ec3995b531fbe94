/**
 * The view of the messages in RAM that compaction needs. All calls are synchronous and change nothing, except `damaged`.
 */
import type { Position } from '@ron/log';
import type { MessageState, SeenEntry } from '../records.ts';

/** The state of a message in RAM. */
export interface HeldMessage extends MessageState {
  readonly kind: 'held';
  readonly place: Position;
  /** The last error that a nack stated, if it is kept in RAM; not the one of a dead letter. */
  readonly error: string | undefined;
  /** `at`: the record that holds the last error, see `MessageReader.deadReader`. */
  readonly dead: (NonNullable<MessageState['dead']> & { readonly at: Position }) | undefined;
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
