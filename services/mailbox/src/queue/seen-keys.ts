/**
 * The idempotency keys of synced messages, 64 bytes each.
 *
 * Bound: 1 M keys a topic, 2 M in all. Overflow: the oldest key (lowest seq) of the topic, or of all topics, is forgotten and counted
 * in `evicted`. Ends are kept in whole seconds, rounded up.
 */
import type { TopicState } from './topic-state.ts';

const todo = (): never => {
  throw new Error('not built yet');
};

export interface SeenKey {
  readonly topic: TopicState;
  /** 16 bytes: hash of topic and key. */
  readonly hash: Uint8Array;
  /** 16 bytes. */
  readonly id: Uint8Array;
  readonly seq: number;
  /** BLAKE3 of the payload; the first 12 bytes are kept. */
  readonly b3: Uint8Array;
  readonly until_ms: number;
}

export const SEEN_LIMITS = { per_topic: 1_000_000, total: 2_000_000, b3_bytes: 12 } as const;

export class SeenKeys {
  get size(): number {
    return todo();
  }
  /** The message of a key; undefined if the key is unknown or its time is over. */
  find(_topic: TopicState, _hash: Uint8Array, _now_ms: number): SeenKey | undefined {
    return todo();
  }
  /** Remembers a key. Of equal keys the one with the higher seq wins. */
  add(_key: SeenKey, _now_ms: number): void {
    todo();
  }
  /** Forgets at most `max` keys whose time is over; true if there may be more. */
  expire(_now_ms: number, _max: number): boolean {
    return todo();
  }
  count(_topic: TopicState): number {
    return todo();
  }
  /** Keys that were forgotten early. */
  evicted(_topic: TopicState): number {
    return todo();
  }
  /** How long a new key of the topic is remembered now. */
  windowInForce(_topic: TopicState, _policy_window_ms: number): number {
    return todo();
  }
  /** Up to `max` keys with seq > `after` and <= `upto`, by seq. For compaction. */
  list(_topic: TopicState, _after: number, _upto: number, _max: number): SeenKey[] {
    return todo();
  }
}

/** `b3` and the kept bytes of the first body agree. */
export function isSameBody(_seen: SeenKey, _b3: Uint8Array): boolean {
  return todo();
}

/** 16 bytes that stand for an idempotency key of a topic. */
export function idempotencyHash(_topic: string, _key: string): Uint8Array {
  return todo();
}
