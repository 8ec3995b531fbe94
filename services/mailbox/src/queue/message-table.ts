/**
 * One row for each waiting message and each dead letter, found by sequence number.
 *
 * Columns, in bytes for each row:
 *
 *     seq 6   segment 4   offset 4   payload bytes 4   meta bytes 2   sent (s) 4   topic 1   state, flags, reason 1
 *     delivery 4   attempts 2   nonce 4   due 8   hash link 4   place in the due heap 4          = 52
 *
 * Beside it, the hash takes 2, the order of the topic 4 and the due heap 4: 62 in all for a leased or delayed message. The columns of
 * a dead letter that need no lease hold the place of its `settled` record (delivery: segment, nonce: offset) and its time (due).
 * Growth allocates one page of 4096 rows; pages that are empty are given back.
 */
import type { Position } from '@ron/log';
import type { DeadReason } from '@ron/proto';
import { DEAD_REASONS, type MessagePlace } from '../store/records.ts';
import { type HashRows, mix32, SlotHash } from './slots/slot-hash.ts';
import type { HeapRows } from './slots/slot-heap.ts';
import { SlotPages } from './slots/slot-pages.ts';
import { NONE, type Slot, STATE, type State } from './states.ts';

const U32 = 2 ** 32;
const SECOND_MS = 1000;
/** Of the columns. */
const ROW_BYTES = 52;
const STATE_BITS = 7;
const REASON_SHIFT = 6;
const HASH_LOAD = 2;
const NEIGHBOURS = 64;
const ATTEMPTS_MAX = 0xffff;

/** Bits beside the state. */
export const FLAG = {
  settling: 8,
  /** The message has a key. */
  keyed: 16,
  /** An earlier message of its key waits, or the keys are not linked yet. */
  behind: 32,
} as const;

/** The columns lie in one buffer, the widest first. */
class Page {
  readonly due_ms: Float64Array;
  readonly next: Int32Array;
  readonly heap_index: Int32Array;
  readonly seq_low: Uint32Array;
  readonly segment: Uint32Array;
  readonly offset: Uint32Array;
  readonly payload_bytes: Uint32Array;
  readonly sent_s: Uint32Array;
  readonly delivery: Uint32Array;
  readonly nonce: Uint32Array;
  readonly seq_high: Uint16Array;
  readonly meta_bytes: Uint16Array;
  readonly attempts: Uint16Array;
  readonly topic: Uint8Array;
  readonly word: Uint8Array;

  constructor(slots: number) {
    const buffer = new ArrayBuffer(ROW_BYTES * slots);
    this.due_ms = new Float64Array(buffer, 0, slots);
    this.next = new Int32Array(buffer, 8 * slots, slots);
    this.heap_index = new Int32Array(buffer, 12 * slots, slots);
    this.seq_low = new Uint32Array(buffer, 16 * slots, slots);
    this.segment = new Uint32Array(buffer, 20 * slots, slots);
    this.offset = new Uint32Array(buffer, 24 * slots, slots);
    this.payload_bytes = new Uint32Array(buffer, 28 * slots, slots);
    this.sent_s = new Uint32Array(buffer, 32 * slots, slots);
    this.delivery = new Uint32Array(buffer, 36 * slots, slots);
    this.nonce = new Uint32Array(buffer, 40 * slots, slots);
    this.seq_high = new Uint16Array(buffer, 44 * slots, slots);
    this.meta_bytes = new Uint16Array(buffer, 46 * slots, slots);
    this.attempts = new Uint16Array(buffer, 48 * slots, slots);
    this.topic = new Uint8Array(buffer, 50 * slots, slots);
    this.word = new Uint8Array(buffer, 51 * slots, slots);
  }
}

/** The bits of a dead letter's reason, beside its state. */
export function reasonBits(reason: DeadReason): number {
  return DEAD_REASONS.indexOf(reason) << REASON_SHIFT;
}

/** The fields of a row that do not change, besides its place. */
export interface RowInit {
  readonly seq: number;
  readonly topic: number;
  readonly place: MessagePlace;
  readonly sent_ms: number;
}

export interface RowLease {
  readonly delivery: number;
  readonly attempts: number;
  readonly nonce: number;
}

export class MessageTable implements HashRows, HeapRows {
  readonly #pages: SlotPages<Page>;
  readonly #mask: number;
  readonly #hash = new SlotHash(this, HASH_LOAD);

  constructor(page_bits?: number) {
    this.#pages = new SlotPages((slots) => new Page(slots), page_bits);
    this.#mask = this.#pages.mask;
  }

  get size(): number {
    return this.#pages.live;
  }

  /** The row of a message; `NONE` if there is none. */
  find(seq: number): Slot {
    let slot = this.#hash.first(hashOfSeq(seq));
    while (slot !== NONE && this.seqOf(slot) !== seq) slot = this.nextOf(slot);
    return slot;
  }

  /** Adds a row without a state, and without a delivery. */
  add({ seq, topic, place, sent_ms }: RowInit): Slot {
    const slot = this.#pages.take();
    const page = this.#pages.of(slot);
    const at = slot & this.#mask;
    page.heap_index[at] = NONE;
    page.seq_low[at] = seq % U32;
    page.seq_high[at] = Math.floor(seq / U32);
    page.sent_s[at] = Math.ceil(sent_ms / SECOND_MS);
    page.topic[at] = topic;
    page.word[at] = STATE.free;
    page.due_ms[at] = 0;
    this.setLease(slot, { delivery: 0, attempts: 0, nonce: 0 });
    this.setPlace(slot, place);
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

  topicOf(slot: Slot): number {
    return this.#pages.of(slot).topic[slot & this.#mask]!;
  }

  payloadBytes(slot: Slot): number {
    return this.#pages.of(slot).payload_bytes[slot & this.#mask]!;
  }

  /** When the message was sent, in Unix ms, rounded up to a second: an age limit never comes early. */
  sentMs(slot: Slot): number {
    return this.#pages.of(slot).sent_s[slot & this.#mask]! * SECOND_MS;
  }

  stateOf(slot: Slot): State {
    return (this.wordOf(slot) & STATE_BITS) as State;
  }

  /** State and flags. */
  wordOf(slot: Slot): number {
    return this.#pages.of(slot).word[slot & this.#mask]!;
  }

  setWord(slot: Slot, word: number): void {
    this.#pages.of(slot).word[slot & this.#mask] = word;
  }

  dueMs(slot: Slot): number {
    return this.#pages.of(slot).due_ms[slot & this.#mask]!;
  }

  setDue(slot: Slot, due_ms: number): void {
    this.#pages.of(slot).due_ms[slot & this.#mask] = due_ms;
  }

  placeOf(slot: Slot): MessagePlace {
    const page = this.#pages.of(slot);
    const at = slot & this.#mask;
    return {
      segment: page.segment[at]!,
      offset: page.offset[at]!,
      payload_bytes: page.payload_bytes[at]!,
      meta_bytes: page.meta_bytes[at]!,
    };
  }

  setPlace(slot: Slot, { segment, offset, payload_bytes, meta_bytes }: MessagePlace): void {
    const page = this.#pages.of(slot);
    const at = slot & this.#mask;
    page.segment[at] = segment;
    page.offset[at] = offset;
    page.payload_bytes[at] = payload_bytes;
    page.meta_bytes[at] = meta_bytes;
  }

  leaseOf(slot: Slot): RowLease {
    const page = this.#pages.of(slot);
    const at = slot & this.#mask;
    return { delivery: page.delivery[at]!, attempts: page.attempts[at]!, nonce: page.nonce[at]! };
  }

  setLease(slot: Slot, { delivery, attempts, nonce }: RowLease): void {
    const page = this.#pages.of(slot);
    const at = slot & this.#mask;
    page.delivery[at] = delivery;
    page.attempts[at] = Math.min(attempts, ATTEMPTS_MAX);
    page.nonce[at] = nonce;
  }

  /** The `settled` record of a dead letter. */
  deadRecordOf(slot: Slot): Position {
    const { delivery, nonce } = this.leaseOf(slot);
    return { segment: delivery, offset: nonce };
  }

  setDeadRecord(slot: Slot, attempts: number, { segment, offset }: Position): void {
    this.setLease(slot, { delivery: segment, attempts, nonce: offset });
  }

  /** Of a dead letter. */
  deadReasonOf(slot: Slot): DeadReason {
    return DEAD_REASONS[this.wordOf(slot) >>> REASON_SHIFT]!;
  }

  // --- for the hash
  hashOf(slot: Slot): number {
    return hashOfSeq(this.seqOf(slot));
  }

  nextOf(slot: Slot): Slot {
    return this.#pages.of(slot).next[slot & this.#mask]!;
  }

  setNext(slot: Slot, next: Slot): void {
    this.#pages.of(slot).next[slot & this.#mask] = next;
  }

  // --- for the due heap
  isBefore(a: Slot, b: Slot): boolean {
    const first = this.dueMs(a);
    const second = this.dueMs(b);
    return first < second || (first === second && this.seqOf(a) < this.seqOf(b));
  }

  heapIndexOf(slot: Slot): number {
    return this.#pages.of(slot).heap_index[slot & this.#mask]!;
  }

  setHeapIndex(slot: Slot, index: number): void {
    this.#pages.of(slot).heap_index[slot & this.#mask] = index;
  }
}

/** Neighbours lie in neighbouring buckets, which halves the time of a start; numbers with a common distance do not collide. */
function hashOfSeq(seq: number): number {
  return mix32(Math.floor(seq / NEIGHBOURS)) ^ (seq % NEIGHBOURS);
}
