/**
 * The idempotency keys of synced messages, 64 bytes each.
 *
 * Contract: `find` gives the message of a key until its end (kept in whole seconds, rounded up). The keys of a topic end in the order
 * of their messages, as long as the window of the topic does not change; an ended key behind one that has not ended is not found any
 * more, and its row is reused when the one before it ends.
 * Bound: 1 M keys a topic, 2 M in all. Overflow: the oldest key (lowest seq) of the topic, or of all topics, is forgotten and counted
 * in `evicted`. [mailbox I-11]
 */
import { blake3 } from '@napi-rs/blake-hash';
import { B3_BYTES, SeenTable } from './seen-table.ts';
import { SlotOrder } from './slots/slot-order.ts';
import { NONE, type Slot } from './states.ts';
import type { TopicState } from './topic-state.ts';

export interface SeenKey {
  readonly topic: TopicState;
  /** 16 bytes, from `idempotencyHash`. */
  readonly hash: Uint8Array;
  /** 16 bytes. */
  readonly id: Uint8Array;
  readonly seq: number;
  /** BLAKE3 of the payload; the first 12 bytes are kept. */
  readonly b3: Uint8Array;
  readonly until_ms: number;
}

export interface SeenLimits {
  readonly per_topic: number;
  readonly total: number;
}

export const SEEN_LIMITS: SeenLimits = { per_topic: 1_000_000, total: 2_000_000 };

/** The keys of a topic. */
interface TopicKeys {
  readonly topic: TopicState;
  readonly order: SlotOrder;
  evicted: number;
  /** The time that the last evicted key still had. */
  evicted_left_ms: number;
}

export class SeenKeys {
  readonly #limits: SeenLimits;
  readonly #table: SeenTable;
  /** By the index of the topic. */
  readonly #topics: (TopicKeys | undefined)[] = [];

  constructor(limits: SeenLimits = SEEN_LIMITS, page_bits?: number) {
    this.#limits = limits;
    this.#table = new SeenTable(page_bits);
  }

  get size(): number {
    return this.#table.size;
  }

  /** The message of a key; undefined if the key is unknown or has ended. */
  find(topic: TopicState, hash: Uint8Array, now_ms: number): SeenKey | undefined {
    const slot = this.#table.find(topic.index, hash);
    if (slot === NONE || this.#table.untilMs(slot) <= now_ms) return undefined;
    return { ...this.#table.row(slot), topic };
  }

  /** Remembers a key that has not ended. Of equal keys the one with the higher seq stays. */
  add(key: SeenKey, now_ms: number): void {
    if (key.until_ms <= now_ms) return;
    const keys = this.#keysOf(key.topic);
    const known = this.#table.find(key.topic.index, key.hash);
    if (known !== NONE) {
      if (this.#table.seqOf(known) >= key.seq) return;
      this.#forget(keys, known);
    }
    if (!this.#makeRoom(keys, key, now_ms)) return;
    keys.order.add(this.#table.add({ ...key, topic: key.topic.index }));
  }

  /** Forgets at most `max` keys that have ended; true if there may be more. */
  expire(now_ms: number, max: number): boolean {
    let left = max;
    for (const keys of this.#topics) {
      if (keys === undefined) continue;
      for (let slot = keys.order.first(); slot !== NONE; slot = keys.order.first()) {
        if (this.#table.untilMs(slot) > now_ms) break;
        if (left === 0) return true;
        this.#forget(keys, slot);
        left -= 1;
      }
    }
    return false;
  }

  /** Remembered keys. */
  count(topic: TopicState): number {
    return this.#known(topic)?.order.size ?? 0;
  }

  /** Keys that were forgotten before their end. */
  evicted(topic: TopicState): number {
    return this.#known(topic)?.evicted ?? 0;
  }

  /** How long a new key of the topic is remembered now. */
  windowInForce(topic: TopicState, policy_window_ms: number): number {
    const keys = this.#known(topic);
    if (keys === undefined || !this.#isFull(keys)) return policy_window_ms;
    return Math.max(0, policy_window_ms - keys.evicted_left_ms);
  }

  #known(topic: TopicState): TopicKeys | undefined {
    const keys = this.#topics[topic.index];
    return keys?.topic === topic ? keys : undefined;
  }

  #keysOf(topic: TopicState): TopicKeys {
    const known = this.#known(topic);
    if (known !== undefined) return known;
    const order = new SlotOrder({ seqOf: (slot) => this.#table.seqOf(slot), isVisible: () => false });
    const keys = { topic, order, evicted: 0, evicted_left_ms: 0 };
    this.#topics[topic.index] = keys;
    return keys;
  }

  #isFull(keys: TopicKeys): boolean {
    return keys.order.size >= this.#limits.per_topic || this.size >= this.#limits.total;
  }

  /** False if the new key is itself the oldest one of a full table. */
  #makeRoom(keys: TopicKeys, { seq, until_ms }: SeenKey, now_ms: number): boolean {
    if (!this.#isFull(keys)) return true;
    const victim = keys.order.size >= this.#limits.per_topic ? keys : this.#withOldest(keys);
    const oldest = victim.order.first();
    if (oldest === NONE || this.#table.seqOf(oldest) > seq) {
      this.#countEvicted(keys, until_ms, now_ms);
      return false;
    }
    this.#countEvicted(victim, this.#table.untilMs(oldest), now_ms);
    this.#forget(victim, oldest);
    return true;
  }

  /** An ended key was not forgotten early. */
  #countEvicted(keys: TopicKeys, until_ms: number, now_ms: number): void {
    if (until_ms <= now_ms) return;
    keys.evicted += 1;
    keys.evicted_left_ms = until_ms - now_ms;
  }

  /** The topic with the oldest key. */
  #withOldest(other: TopicKeys): TopicKeys {
    let found = other;
    let seq = Infinity;
    for (const keys of this.#topics) {
      const first = keys?.order.first() ?? NONE;
      if (keys === undefined || first === NONE || this.#table.seqOf(first) >= seq) continue;
      found = keys;
      seq = this.#table.seqOf(first);
    }
    return found;
  }

  #forget(keys: TopicKeys, slot: Slot): void {
    keys.order.remove(slot);
    this.#table.remove(slot);
  }
}

/** The body of the first message has this BLAKE3. */
export function isSameBody(seen: Pick<SeenKey, 'b3'>, b3: Uint8Array): boolean {
  for (let at = 0; at < B3_BYTES; at += 1) if (seen.b3[at] !== b3[at]) return false;
  return true;
}

/** 16 bytes that stand for an idempotency key of a topic. A topic has no line feed, so no other pair gives the same text. */
export function idempotencyHash(topic: string, key: string): Uint8Array {
  return blake3(`${topic}\n${key}`).subarray(0, 16);
}
