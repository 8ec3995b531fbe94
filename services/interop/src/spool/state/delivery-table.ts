/**
 * One row for each delivery in the spool, found by idempotency key and by id.
 *
 * A row takes 97 bytes (delivery-page.ts). Beside it, the two hashes take 4 to 8 bytes for each of `rows_max`.
 * Bound: the caller bounds the rows. Growth allocates one page and copies no column; an empty table gives its pages back.
 */
import { sched } from '@ron/kernel';
import { ULID_BYTES } from '@ron/proto';
import { KEY_BYTES } from '../store/delivery-record.ts';
import { DeliveryPage } from './delivery-page.ts';

export type Slot = number;
export const NONE: Slot = -1;

/** log2 of the rows of a page. Models use smaller pages. */
const PAGE_BITS = 12;
/** The last bytes of a ULID are random. */
const ID_HASH_AT = 12;
/** Any bytes of a BLAKE3. */
const KEY_HASH_AT = 28;
const BUCKETS_MIN = 16;
const BUCKETS_MAX = 2 ** 22;

export const FLAG = {
  /** Its record is not durable yet. */
  pending: 1,
  /** It is in mailbox, but its record is still being written. */
  delivered: 2,
  /** It was in the log at the start. */
  replayed: 4,
} as const;

export interface RowInit {
  readonly key: Uint8Array;
  readonly id: Uint8Array;
  readonly provider: number;
  readonly received_ms: number;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
  readonly flags: number;
}

/** The place of a row's record. */
export interface RowPlace {
  readonly seq: number;
  readonly segment: number;
  readonly offset: number;
}

type LinkColumn = 'next' | 'previous' | 'key_next' | 'id_next';

export class DeliveryTable {
  readonly #bits: number;
  readonly #mask: number;
  #pages: DeliveryPage[] = [];
  readonly #keys: Int32Array;
  readonly #ids: Int32Array;
  readonly #bucket_mask: number;
  /** Keeps a client from choosing keys that share a bucket. */
  readonly #seed = Buffer.from(sched.randomBytes(4)).readInt32LE(0) | 1;
  #size = 0;
  /** Rows from here on were never used. */
  #fresh = 0;
  #free: Slot = NONE;

  constructor(rows_max: number, page_bits: number = PAGE_BITS) {
    this.#bits = page_bits;
    this.#mask = (1 << page_bits) - 1;
    const wanted = Math.min(BUCKETS_MAX, Math.max(BUCKETS_MIN, rows_max / 2));
    const buckets = 2 ** Math.ceil(Math.log2(wanted));
    this.#bucket_mask = buckets - 1;
    this.#keys = new Int32Array(buckets).fill(NONE);
    this.#ids = new Int32Array(buckets).fill(NONE);
  }

  get size(): number {
    return this.#size;
  }

  /** The row of an idempotency key; `NONE` if there is none. */
  findKey(key: Uint8Array): Slot {
    let slot = this.#keys[this.#bucketOf(key, KEY_HASH_AT)]!;
    while (slot !== NONE && !this.#isKey(slot, key)) slot = this.#link('key_next', slot);
    return slot;
  }

  /** The row of a delivery; `NONE` if there is none. */
  findId(id: Uint8Array): Slot {
    let slot = this.#ids[this.#bucketOf(id, ID_HASH_AT)]!;
    while (slot !== NONE && !this.#isId(slot, id)) slot = this.#link('id_next', slot);
    return slot;
  }

  add({ key, id, provider, received_ms, payload_bytes, meta_bytes, flags }: RowInit): Slot {
    const slot = this.#take();
    const page = this.#pageOf(slot);
    const at = slot & this.#mask;
    page.received_ms[at] = received_ms;
    page.payload_bytes[at] = payload_bytes;
    page.meta_bytes[at] = meta_bytes;
    page.provider[at] = provider;
    page.flags[at] = flags;
    page.keys.set(key, at * KEY_BYTES);
    page.ids.set(id, at * ULID_BYTES);
    page.next[at] = NONE;
    page.previous[at] = NONE;
    this.setPlace(slot, { seq: 0, segment: 0, offset: 0 });
    this.#enter(this.#keys, 'key_next', this.#bucketOf(key, KEY_HASH_AT), slot);
    this.#enter(this.#ids, 'id_next', this.#bucketOf(id, ID_HASH_AT), slot);
    this.#size += 1;
    return slot;
  }

  remove(slot: Slot): void {
    this.#leave(this.#keys, 'key_next', this.#bucketOf(this.keyOf(slot), KEY_HASH_AT), slot);
    this.#leave(this.#ids, 'id_next', this.#bucketOf(this.idOf(slot), ID_HASH_AT), slot);
    this.#size -= 1;
    if (this.#size === 0) {
      this.#pages = [];
      this.#fresh = 0;
      this.#free = NONE;
      return;
    }
    this.setNext(slot, this.#free);
    this.#free = slot;
  }

  placeOf(slot: Slot): RowPlace {
    const page = this.#pageOf(slot);
    const at = slot & this.#mask;
    return { seq: page.seq[at]!, segment: page.segment[at]!, offset: page.offset[at]! };
  }

  setPlace(slot: Slot, { seq, segment, offset }: RowPlace): void {
    const page = this.#pageOf(slot);
    const at = slot & this.#mask;
    page.seq[at] = seq;
    page.segment[at] = segment;
    page.offset[at] = offset;
  }

  /** A view that is valid until the row is removed. */
  keyOf(slot: Slot): Uint8Array {
    const at = (slot & this.#mask) * KEY_BYTES;
    return this.#pageOf(slot).keys.subarray(at, at + KEY_BYTES);
  }

  /** A view that is valid until the row is removed. */
  idOf(slot: Slot): Uint8Array {
    const at = (slot & this.#mask) * ULID_BYTES;
    return this.#pageOf(slot).ids.subarray(at, at + ULID_BYTES);
  }

  providerOf(slot: Slot): number {
    return this.#pageOf(slot).provider[slot & this.#mask]!;
  }

  receivedMs(slot: Slot): number {
    return this.#pageOf(slot).received_ms[slot & this.#mask]!;
  }

  payloadBytes(slot: Slot): number {
    return this.#pageOf(slot).payload_bytes[slot & this.#mask]!;
  }

  metaBytes(slot: Slot): number {
    return this.#pageOf(slot).meta_bytes[slot & this.#mask]!;
  }

  flagsOf(slot: Slot): number {
    return this.#pageOf(slot).flags[slot & this.#mask]!;
  }

  setFlags(slot: Slot, flags: number): void {
    this.#pageOf(slot).flags[slot & this.#mask] = flags;
  }

  /** The next delivery of the provider; `NONE` after the last. */
  nextOf(slot: Slot): Slot {
    return this.#link('next', slot);
  }

  setNext(slot: Slot, next: Slot): void {
    this.#setLink('next', slot, next);
  }

  previousOf(slot: Slot): Slot {
    return this.#link('previous', slot);
  }

  setPrevious(slot: Slot, previous: Slot): void {
    this.#setLink('previous', slot, previous);
  }

  #pageOf(slot: Slot): DeliveryPage {
    return this.#pages[slot >>> this.#bits]!;
  }

  #take(): Slot {
    const free = this.#free;
    if (free !== NONE) {
      this.#free = this.nextOf(free);
      return free;
    }
    const slot = this.#fresh++;
    if ((slot & this.#mask) === 0) this.#pages.push(new DeliveryPage(this.#mask + 1));
    return slot;
  }

  #bucketOf(bytes: Uint8Array, at: number): number {
    const word = bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
    const mixed = Math.imul(word ^ this.#seed, 0x9e3779b1);
    return (mixed ^ (mixed >>> 15)) & this.#bucket_mask;
  }

  #isKey(slot: Slot, key: Uint8Array): boolean {
    return isEqualAt(this.#pageOf(slot).keys, (slot & this.#mask) * KEY_BYTES, key, KEY_BYTES);
  }

  #isId(slot: Slot, id: Uint8Array): boolean {
    return isEqualAt(this.#pageOf(slot).ids, (slot & this.#mask) * ULID_BYTES, id, ULID_BYTES);
  }

  #link(column: LinkColumn, slot: Slot): Slot {
    return this.#pageOf(slot)[column][slot & this.#mask]!;
  }

  #setLink(column: LinkColumn, slot: Slot, to: Slot): void {
    this.#pageOf(slot)[column][slot & this.#mask] = to;
  }

  #enter(heads: Int32Array, column: LinkColumn, bucket: number, slot: Slot): void {
    this.#setLink(column, slot, heads[bucket]!);
    heads[bucket] = slot;
  }

  #leave(heads: Int32Array, column: LinkColumn, bucket: number, slot: Slot): void {
    const after = this.#link(column, slot);
    let at = heads[bucket]!;
    if (at === slot) {
      heads[bucket] = after;
      return;
    }
    while (this.#link(column, at) !== slot) at = this.#link(column, at);
    this.#setLink(column, at, after);
  }
}

function isEqualAt(bytes: Uint8Array, at: number, wanted: Uint8Array, count: number): boolean {
  for (let index = 0; index < count; index += 1) if (bytes[at + index] !== wanted[index]) return false;
  return true;
}
