/**
 * The places of all receipts, in the order of the log.
 *
 *     row: id 16   segment 4   offset 4   time (0.1 s) 4   hash link 4   segment and offset of the batch, and the leaf 8     = 40 bytes
 *
 * Contract: a row is found by its id. Rows are dropped oldest first, all of a segment at a time, and never with a row that
 * `canDrop` keeps. A row is unsigned until `sign` or `lose`; `first_unsigned` is the oldest such row. A drop takes a short turn
 * however many rows it has: they are unknown at once, and each later `add` frees the memory of some.
 * Bound: `bytes_max` for `capacity` rows, with 1 to 2 bytes of hash for each, dropped ones included. Pages are allocated as it
 * grows. Only a replay can exceed the capacity, after it was lowered.
 */
import { assert, sched } from '@ron/kernel';
import type { Position } from '@ron/log';

/** The number of a row; ascending from 0 since the start. */
export type Row = number;
export const NO_ROW: Row = -1;

const ID_WORDS = 4;
const SEGMENT = 4;
const OFFSET = 5;
const TIME = 6;
const LINK = 7;
const BATCH_SEGMENT = 8;
const BATCH_OFFSET = 9;
const WORDS = 10;
const WORD_BYTES = Uint32Array.BYTES_PER_ELEMENT;
const ROW_BYTES = WORDS * WORD_BYTES;
/** Records begin at multiples of this. */
const OFFSET_UNIT = 64;
/** Leaves of a batch. */
const LEAVES = 128;
const U32 = 2 ** 32;
const TIME_UNIT_MS = 100;
/** Links count modulo this; 0 ends a chain. */
const LINK_MOD = 2 ** 31;
/** Segments have numbers from 1 on. */
const UNSIGNED = 0;
const LOST = U32 - 1;
const PAGE_ROWS_MAX = 4096;
/** Dropped rows that an `add` frees: more than it adds, so that the index shrinks to its rows. */
const FREED_BY_ADD = 4;

interface Segment {
  readonly segment: number;
  readonly first: Row;
  /** The time of its newest row, in Unix ms. */
  newest_ms: number;
}

export interface BatchPlace extends Position {
  readonly leaf: number;
}

export class ReceiptIndex {
  readonly capacity: number;
  readonly #page_rows: number;
  /** Pages of rows from `#page_first` on. */
  readonly #pages: Uint32Array[] = [];
  #page_first = 0;
  readonly #heads: Uint32Array;
  readonly #seed = Buffer.from(sched.randomBytes(4)).readInt32LE(0) | 1;
  readonly #segments: Segment[] = [];
  /** Rows from here on have memory; those before `#head` are dropped. */
  #oldest: Row = 0;
  #head: Row = 0;
  #tail: Row = 0;
  #first_unsigned: Row = 0;
  #unsigned = 0;

  constructor(bytes_max: number) {
    const rows = Math.floor(bytes_max / ROW_BYTES);
    const buckets = powerOfTwoUpTo(Math.max(16, rows / 4));
    this.#page_rows = Math.min(PAGE_ROWS_MAX, powerOfTwoUpTo(Math.max(16, rows / 16)));
    // The oldest and the newest page are used in part.
    this.capacity = Math.floor((bytes_max - buckets * WORD_BYTES) / ROW_BYTES) - 2 * this.#page_rows;
    assert(this.capacity >= this.#page_rows, 'the index of receipts has room for some pages');
    this.#heads = new Uint32Array(buckets);
  }

  get rows(): number {
    return this.#tail - this.#head;
  }

  /** In memory. */
  get bytes(): number {
    return this.#heads.byteLength + this.#pages.length * this.#page_rows * ROW_BYTES;
  }

  get unsigned(): number {
    return this.#unsigned;
  }

  /** The oldest unsigned row; the end if there is none. */
  get first_unsigned(): Row {
    return this.#first_unsigned;
  }

  get end(): Row {
    return this.#tail;
  }

  /** The oldest segment with rows. */
  get oldest(): Readonly<Segment> | undefined {
    return this.#segments[0];
  }

  find(id: Uint8Array): Row {
    // A chain leads from newer rows to older ones.
    for (let row = this.#rowOf(this.#heads[this.#bucketOf(id)]!); row >= this.#head; row = this.#next(row)) {
      if (this.#matches(row, id)) return row;
    }
    return NO_ROW;
  }

  add(id: Uint8Array, { segment, offset }: Position, time_ms: number): Row {
    for (let freed = 0; freed < FREED_BY_ADD && this.#oldest < this.#head; freed += 1) this.#freeOldest();
    const row = this.#tail;
    if (row % this.#page_rows === 0) this.#pages.push(new Uint32Array(this.#page_rows * WORDS));
    this.#tail += 1;
    const [page, at] = this.#cell(row);
    for (let word = 0; word < ID_WORDS; word += 1) page[at + word] = wordOf(id, word);
    page[at + SEGMENT] = segment;
    page[at + OFFSET] = offset / OFFSET_UNIT;
    page[at + TIME] = Math.floor(time_ms / TIME_UNIT_MS) % U32;
    const bucket = this.#bucketOf(id);
    page[at + LINK] = this.#heads[bucket]!;
    this.#heads[bucket] = (row % LINK_MOD) + 1;
    this.#unsigned += 1;
    this.#count(segment, row, time_ms);
    return row;
  }

  isUnsigned(row: Row): boolean {
    return this.#word(row, BATCH_SEGMENT) === UNSIGNED;
  }

  sign(row: Row, { segment, offset, leaf }: BatchPlace): void {
    this.#decide(row, segment, (offset / OFFSET_UNIT) * LEAVES + leaf);
  }

  /** The record of the row is damaged: it can never be signed. */
  lose(row: Row): void {
    this.#decide(row, LOST, 0);
  }

  placeOf(row: Row): Position {
    return { segment: this.#word(row, SEGMENT), offset: this.#word(row, OFFSET) * OFFSET_UNIT };
  }

  /** Undefined if the row is not signed. */
  batchOf(row: Row): BatchPlace | undefined {
    const segment = this.#word(row, BATCH_SEGMENT);
    if (segment === UNSIGNED || segment === LOST) return undefined;
    const word = this.#word(row, BATCH_OFFSET);
    return { segment, offset: Math.floor(word / LEAVES) * OFFSET_UNIT, leaf: word % LEAVES };
  }

  /** The age of a row at `wall_ms`, in steps of `TIME_UNIT_MS`; up to 6.8 years. */
  ageMs(row: Row, wall_ms: number): number {
    const age = (Math.floor(wall_ms / TIME_UNIT_MS) - this.#word(row, TIME)) % U32;
    const units = age < 0 ? age + U32 : age;
    // A clock that was set back gives a huge age.
    return units > U32 / 2 ? 0 : units * TIME_UNIT_MS;
  }

  /** Rows of segments that `canDrop` keeps: those from the first unsigned row's segment on, and of the newest segment. */
  kept(keepsUnsigned: boolean): number {
    const newest = this.#segments.at(-1);
    if (newest === undefined) return 0;
    if (!keepsUnsigned || this.#unsigned === 0) return this.#tail - newest.first;
    const oldest = this.#segments.findLast(({ first }) => first <= this.#first_unsigned)!;
    return this.#tail - oldest.first;
  }

  /** Whether the oldest segment can go: newer ones exist, and it has no unsigned row unless those are not kept. */
  canDrop(keepsUnsigned: boolean): boolean {
    const next = this.#segments[1];
    return next !== undefined && (!keepsUnsigned || next.first <= this.#first_unsigned);
  }

  /** Drops the rows of the oldest segment. Returns their number. */
  dropOldest(): number {
    const next = this.#segments[1];
    assert(next !== undefined, 'the newest segment stays');
    this.#segments.shift();
    const count = next.first - this.#head;
    for (let row = this.#first_unsigned; row < next.first; row += 1) if (this.isUnsigned(row)) this.#unsigned -= 1;
    this.#head = next.first;
    this.#skipSigned();
    return count;
  }

  #count(segment: number, row: Row, time_ms: number): void {
    const newest = this.#segments.at(-1);
    if (newest?.segment === segment) newest.newest_ms = Math.max(newest.newest_ms, time_ms);
    else this.#segments.push({ segment, first: row, newest_ms: time_ms });
  }

  #decide(row: Row, segment: number, word: number): void {
    const [page, at] = this.#cell(row);
    if (page[at + BATCH_SEGMENT] === UNSIGNED) this.#unsigned -= 1;
    page[at + BATCH_SEGMENT] = segment;
    page[at + BATCH_OFFSET] = word;
    this.#skipSigned();
  }

  #skipSigned(): void {
    this.#first_unsigned = Math.max(this.#first_unsigned, this.#head);
    while (this.#first_unsigned < this.#tail && !this.isUnsigned(this.#first_unsigned)) this.#first_unsigned += 1;
  }

  /** The oldest row is the last of its chain. */
  #freeOldest(): void {
    const row = this.#oldest;
    const [page, at] = this.#cell(row);
    const bucket = this.#bucketOfWord(page[at + ID_WORDS - 1]!);
    const link = (row % LINK_MOD) + 1;
    if (this.#heads[bucket] === link) this.#heads[bucket] = 0;
    else {
      let before = this.#rowOf(this.#heads[bucket]!);
      while (this.#word(before, LINK) !== link) before = this.#next(before);
      const [its_page, its_at] = this.#cell(before);
      its_page[its_at + LINK] = 0;
    }
    this.#oldest += 1;
    if (this.#oldest % this.#page_rows !== 0) return;
    this.#pages.shift();
    this.#page_first += 1;
  }

  #cell(row: Row): readonly [page: Uint32Array, at: number] {
    const page = this.#pages[Math.floor(row / this.#page_rows) - this.#page_first]!;
    return [page, (row % this.#page_rows) * WORDS];
  }

  #word(row: Row, word: number): number {
    const [page, at] = this.#cell(row);
    return page[at + word]!;
  }

  #next(row: Row): Row {
    return this.#rowOf(this.#word(row, LINK));
  }

  #rowOf(link: number): Row {
    if (link === 0) return NO_ROW;
    const back = (this.#tail - (link - 1)) % LINK_MOD;
    return this.#tail - (back <= 0 ? back + LINK_MOD : back);
  }

  #bucketOf(id: Uint8Array): number {
    return this.#bucketOfWord(wordOf(id, ID_WORDS - 1));
  }

  /** The last word of a ULID is random. The seed keeps a client from choosing ids that share a bucket. */
  #bucketOfWord(word: number): number {
    const mixed = Math.imul(word ^ (word >>> 15), this.#seed);
    return (mixed ^ (mixed >>> 16)) & (this.#heads.length - 1);
  }

  #matches(row: Row, id: Uint8Array): boolean {
    const [page, at] = this.#cell(row);
    for (let word = 0; word < ID_WORDS; word += 1) if (page[at + word] !== wordOf(id, word)) return false;
    return true;
  }
}

function wordOf(id: Uint8Array, word: number): number {
  const at = word * WORD_BYTES;
  return ((id[at]! << 24) | (id[at + 1]! << 16) | (id[at + 2]! << 8) | id[at + 3]!) >>> 0;
}

const powerOfTwoUpTo = (value: number): number => 2 ** Math.floor(Math.log2(value));
