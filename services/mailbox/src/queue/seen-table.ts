/**
 * One row for each remembered idempotency key, found by its hash.
 *
 * Columns, in bytes for each row:
 *
 *     hash of topic and key 16   id 16   begin of the body's BLAKE3 12   seq 6   end (s) 4   topic 1   hash link 4    = 59
 *
 * Beside it, the hash takes 1 and the order of the topic 4: 64 in all. Growth allocates one page of 4096 rows.
 */
import { sched } from '@ron/kernel';
import { type HashRows, mix32, SlotHash } from './slots/slot-hash.ts';
import { SlotPages } from './slots/slot-pages.ts';
import { NONE, type Slot } from './states.ts';

const U32 = 2 ** 32;
const SECOND_MS = 1000;
const HASH_LOAD = 4;
const HASH_BYTES = 16;
const ID_BYTES = 16;
/** Bytes of a body's BLAKE3 that are kept. */
export const B3_BYTES = 12;
const ID_AT = HASH_BYTES;
const B3_AT = ID_AT + ID_BYTES;
const ROW_BYTES = B3_AT + B3_BYTES;

class Page {
  readonly bytes: Uint8Array;
  readonly next: Int32Array;
  readonly seq_low: Uint32Array;
  readonly seq_high: Uint16Array;
  readonly until_s: Uint32Array;
  readonly topic: Uint8Array;

  constructor(slots: number) {
    this.bytes = new Uint8Array(slots * ROW_BYTES);
    this.next = new Int32Array(slots);
    this.seq_low = new Uint32Array(slots);
    this.seq_high = new Uint16Array(slots);
    this.until_s = new Uint32Array(slots);
    this.topic = new Uint8Array(slots);
  }
}

export interface SeenRow {
  readonly topic: number;
  readonly hash: Uint8Array;
  readonly id: Uint8Array;
  readonly b3: Uint8Array;
  readonly seq: number;
  readonly until_ms: number;
}

export class SeenTable implements HashRows {
  readonly #pages: SlotPages<Page>;
  readonly #mask: number;
  readonly #hash = new SlotHash(this, HASH_LOAD);
  /** Odd. Keeps a client from choosing keys that share a bucket. */
  readonly #seed = Buffer.from(sched.randomBytes(4)).readInt32LE(0) | 1;

  constructor(page_bits?: number) {
    this.#pages = new SlotPages((slots) => new Page(slots), page_bits);
    this.#mask = this.#pages.mask;
  }

  get size(): number {
    return this.#pages.live;
  }

  find(topic: number, hash: Uint8Array): Slot {
    let slot = this.#hash.first(this.#mix(hash, 0));
    while (slot !== NONE && !this.#matches(slot, topic, hash)) slot = this.nextOf(slot);
    return slot;
  }

  add({ topic, hash, id, b3, seq, until_ms }: SeenRow): Slot {
    const slot = this.#pages.take();
    const page = this.#pages.of(slot);
    const at = slot & this.#mask;
    copy(hash, page.bytes, at * ROW_BYTES, HASH_BYTES);
    copy(id, page.bytes, at * ROW_BYTES + ID_AT, ID_BYTES);
    copy(b3, page.bytes, at * ROW_BYTES + B3_AT, B3_BYTES);
    page.seq_low[at] = seq % U32;
    page.seq_high[at] = Math.floor(seq / U32);
    page.until_s[at] = Math.ceil(until_ms / SECOND_MS);
    page.topic[at] = topic;
    this.#hash.add(slot);
    return slot;
  }

  remove(slot: Slot): void {
    this.#hash.remove(slot);
    this.#pages.give(slot);
  }

  seqOf(slot: Slot): number {
    const page = this.#pages.of(slot);
    return page.seq_high[slot & this.#mask]! * U32 + page.seq_low[slot & this.#mask]!;
  }

  untilMs(slot: Slot): number {
    return this.#pages.of(slot).until_s[slot & this.#mask]! * SECOND_MS;
  }

  /** A copy of the row. */
  row(slot: Slot): SeenRow {
    const page = this.#pages.of(slot);
    const begin = (slot & this.#mask) * ROW_BYTES;
    return {
      topic: page.topic[slot & this.#mask]!,
      hash: page.bytes.slice(begin, begin + HASH_BYTES),
      id: page.bytes.slice(begin + ID_AT, begin + B3_AT),
      b3: page.bytes.slice(begin + B3_AT, begin + ROW_BYTES),
      seq: this.seqOf(slot),
      until_ms: this.untilMs(slot),
    };
  }

  // --- for the hash
  hashOf(slot: Slot): number {
    return this.#mix(this.#pages.of(slot).bytes, (slot & this.#mask) * ROW_BYTES);
  }

  nextOf(slot: Slot): Slot {
    return this.#pages.of(slot).next[slot & this.#mask]!;
  }

  setNext(slot: Slot, next: Slot): void {
    this.#pages.of(slot).next[slot & this.#mask] = next;
  }

  #mix(bytes: Uint8Array, at: number): number {
    return mix32(word(bytes, at) ^ Math.imul(word(bytes, at + 4), this.#seed));
  }

  #matches(slot: Slot, topic: number, hash: Uint8Array): boolean {
    const page = this.#pages.of(slot);
    if (page.topic[slot & this.#mask] !== topic) return false;
    const begin = (slot & this.#mask) * ROW_BYTES;
    for (let at = 0; at < HASH_BYTES; at += 1) if (page.bytes[begin + at] !== hash[at]) return false;
    return true;
  }
}

function word(bytes: Uint8Array, at: number): number {
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
}

function copy(from: Uint8Array, to: Uint8Array, at: number, count: number): void {
  for (let index = 0; index < count; index += 1) to[at + index] = from[index]!;
}
