/**
 * The view of the messages in RAM that compaction and the ledger check need. All calls are synchronous and change nothing,
 * except `damaged`.
 */
import type { Position } from '@ron/log';
import type { MessageState, SeenEntry } from './records.ts';

/** `settling`: an ack, a dead letter or a removal is syncing. `gone`: acknowledged, removed, or never known. */
export type Liveness =
  | { readonly kind: 'gone' }
  | { readonly kind: 'settling' }
  | { readonly kind: 'held'; readonly place: Position; readonly state: MessageState };

/** Messages of a topic in RAM. */
export interface HeldCounts {
  readonly topic: string;
  /** Ready, delayed and leased ones. */
  readonly waiting: number;
  readonly dead: number;
}

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
  /** Each topic that has messages in RAM. */
  counts(): Iterable<HeldCounts>;
  /** The body of a message is damaged: makes a dead letter of it, durably. Does nothing if it is gone or dead already. */
  damaged(seq: number, signal: AbortSignal): Promise<void>;
}
