/**
 * Hash table of slots by linear hashing: it grows and shrinks by one bucket at a time, so no operation rehashes the whole.
 *
 * Contract: the rows hold the links (`nextOf`, `setNext`) and the hashes; the table holds the first slot of each bucket, in pages.
 * Rows that were added later come first in a chain.
 * Bound: 4 bytes for each `load` rows. An insert splits at most one bucket, a removal joins at most two.
 *
 *     for (let slot = table.first(hash); slot !== NONE; slot = rows.nextOf(slot)) if (matches(slot)) return slot;
 */
import { NONE, type Slot } from '../states.ts';

export interface HashRows {
  /** 32 bits, well mixed. */
  hashOf(slot: Slot): number;
  nextOf(slot: Slot): Slot;
  setNext(slot: Slot, next: Slot): void;
}

const PAGE_BITS = 10;
const PAGE_BUCKETS = 1 << PAGE_BITS;
const PAGE_MASK = PAGE_BUCKETS - 1;
const BUCKETS_MIN = 16;

/** Mixes 32 bits (the finalizer of MurmurHash3). */
export function mix32(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

export class SlotHash {
  readonly #rows: HashRows;
  readonly #load: number;
  readonly #pages: Int32Array[] = [new Int32Array(BUCKETS_MIN).fill(NONE)];
  #buckets = BUCKETS_MIN;
  /** The largest power of two that is not above `#buckets`. */
  #half = BUCKETS_MIN;
  #size = 0;

  /** `load`: rows per bucket. */
  constructor(rows: HashRows, load: number) {
    this.#rows = rows;
    this.#load = load;
  }

  get size(): number {
    return this.#size;
  }

  get bytes(): number {
    return this.#pages.length * PAGE_BUCKETS * Int32Array.BYTES_PER_ELEMENT;
  }

  /** The first slot of the chain in which rows of this hash are. */
  first(hash: number): Slot {
    return this.#head(this.#bucketOf(hash));
  }

  add(slot: Slot): void {
    this.#push(this.#bucketOf(this.#rows.hashOf(slot)), slot);
    this.#size += 1;
    if (this.#size > this.#buckets * this.#load) this.#split();
  }

  remove(slot: Slot): void {
    const bucket = this.#bucketOf(this.#rows.hashOf(slot));
    this.#unlink(bucket, slot);
    this.#size -= 1;
    if (this.#buckets > BUCKETS_MIN && this.#size < (this.#buckets >>> 1) * this.#load) this.#join();
  }

  /** Puts `by` into the place of `slot` in its chain. Both have the same hash. */
  replace(slot: Slot, by: Slot): void {
    const bucket = this.#bucketOf(this.#rows.hashOf(slot));
    this.#unlink(bucket, slot);
    this.#push(bucket, by);
  }

  #bucketOf(hash: number): number {
    const bucket = hash & (2 * this.#half - 1);
    return bucket < this.#buckets ? bucket : bucket - this.#half;
  }

  #head(bucket: number): Slot {
    return this.#pages[bucket >>> PAGE_BITS]![bucket & PAGE_MASK]!;
  }

  #setHead(bucket: number, slot: Slot): void {
    this.#pages[bucket >>> PAGE_BITS]![bucket & PAGE_MASK] = slot;
  }

  #push(bucket: number, slot: Slot): void {
    this.#rows.setNext(slot, this.#head(bucket));
    this.#setHead(bucket, slot);
  }

  #unlink(bucket: number, slot: Slot): void {
    const next = this.#rows.nextOf(slot);
    let at = this.#head(bucket);
    if (at === slot) {
      this.#setHead(bucket, next);
      return;
    }
    while (this.#rows.nextOf(at) !== slot) at = this.#rows.nextOf(at);
    this.#rows.setNext(at, next);
  }

  /** Adds a bucket and moves its rows out of the bucket that they shared. */
  #split(): void {
    const added = this.#buckets;
    if (added === BUCKETS_MIN) this.#pages[0] = wholePage(this.#pages[0]);
    else if ((added & PAGE_MASK) === 0) this.#pages.push(wholePage());
    this.#setHead(added, NONE);
    this.#buckets += 1;
    if (this.#buckets === 2 * this.#half) this.#half = this.#buckets;
    const from = added - highestBit(added);
    let slot = this.#head(from);
    this.#setHead(from, NONE);
    while (slot !== NONE) {
      const next = this.#rows.nextOf(slot);
      this.#push(this.#bucketOf(this.#rows.hashOf(slot)), slot);
      slot = next;
    }
  }

  /** Removes the last bucket and moves its rows into the bucket that it was split from. */
  #join(): void {
    const last = this.#buckets - 1;
    this.#buckets = last;
    if (last < this.#half) this.#half >>>= 1;
    const into = last - highestBit(last);
    let slot = this.#head(last);
    while (slot !== NONE) {
      const next = this.#rows.nextOf(slot);
      this.#push(into, slot);
      slot = next;
    }
    if ((last & PAGE_MASK) === 0) this.#pages.pop();
  }
}

/** The first page begins small: most tables of a test or a model stay so. */
function wholePage(begin?: Int32Array): Int32Array {
  const page = new Int32Array(PAGE_BUCKETS);
  if (begin !== undefined) page.set(begin);
  return page;
}

function highestBit(value: number): number {
  return 1 << (31 - Math.clz32(value));
}
