/**
 * The waiting messages of each key, in the order of their sequence numbers.
 *
 * Contract: the head of a key is its earliest waiting message; only the head may be delivered. Keys are identified by 64 bits of a
 * seeded hash and their topic: two keys of a topic with the same hash wait for each other, which keeps the order of both.
 * Bound: 28 bytes for each keyed message (pages of 4096 slots that hold a keyed message, and the hash); none for others.
 * The caller links messages in the order of their sequence numbers: at once in operation, and after a replay, in which moved messages
 * come late, all of them at its end.
 */
import { sched } from '@ron/kernel';
import { type HashRows, mix32, SlotHash } from './slots/slot-hash.ts';
import { PAGE_BITS } from './slots/slot-pages.ts';
import { NONE, type Slot } from './states.ts';

const HASH_LOAD = 1;

/** The columns of the message table that the keys use. */
export interface KeyRows {
  topicOf(slot: Slot): number;
}

/** `ahead` and `behind` make a ring of the messages of a key; of the head, `ahead` is the last one. */
class Page {
  live = 0;
  readonly low: Uint32Array;
  readonly high: Uint32Array;
  readonly ahead: Int32Array;
  readonly behind: Int32Array;
  /** Link of the hash; heads only. */
  readonly next: Int32Array;

  constructor(slots: number) {
    this.low = new Uint32Array(slots);
    this.high = new Uint32Array(slots);
    this.ahead = new Int32Array(slots);
    this.behind = new Int32Array(slots);
    this.next = new Int32Array(slots);
  }
}

export class KeyQueues implements HashRows {
  readonly #rows: KeyRows;
  readonly #bits: number;
  readonly #mask: number;
  readonly #seed = Buffer.from(sched.randomBytes(4)).readInt32LE(0);
  readonly #pages: (Page | undefined)[] = [];
  #spare: Page | undefined;
  readonly #heads = new SlotHash(this, HASH_LOAD);

  constructor(rows: KeyRows, page_bits = PAGE_BITS) {
    this.#rows = rows;
    this.#bits = page_bits;
    this.#mask = (1 << page_bits) - 1;
  }

  /** Remembers the key of a message, before `link`. */
  set(slot: Slot, key: string): void {
    const page = (this.#pages[slot >>> this.#bits] ??= this.#newPage());
    const at = slot & this.#mask;
    const [low, high] = hashOfKey(key, this.#seed ^ this.#rows.topicOf(slot));
    page.live += 1;
    page.low[at] = low;
    page.high[at] = high;
    page.ahead[at] = NONE;
    page.behind[at] = NONE;
  }

  isLinked(slot: Slot): boolean {
    return this.#behindOf(slot) !== NONE;
  }

  /** Puts the message behind all others of its key. True if it is the only one, and so the head. */
  link(slot: Slot): boolean {
    const head = this.#head(slot);
    if (head === NONE) {
      this.#join(slot, slot);
      this.#heads.add(slot);
      return true;
    }
    const last = this.#aheadOf(head);
    this.#join(last, slot);
    this.#join(slot, head);
    return false;
  }

  /** Takes a message out, linked or not. Returns the new head of its key if it was the head; `NONE` otherwise. */
  remove(slot: Slot): Slot {
    const behind = this.#behindOf(slot);
    let head: Slot = NONE;
    if (behind === slot) this.#heads.remove(slot);
    else if (behind !== NONE) {
      if (this.#head(slot) === slot) {
        this.#heads.replace(slot, behind);
        head = behind;
      }
      this.#join(this.#aheadOf(slot), behind);
    }
    this.#forget(slot);
    return head;
  }

  // --- for the hash of heads
  hashOf(slot: Slot): number {
    const page = this.#pages[slot >>> this.#bits]!;
    return mix32(page.low[slot & this.#mask]! ^ Math.imul(page.high[slot & this.#mask]!, 0x9e3779b1));
  }

  nextOf(slot: Slot): Slot {
    return this.#pages[slot >>> this.#bits]!.next[slot & this.#mask]!;
  }

  setNext(slot: Slot, next: Slot): void {
    this.#pages[slot >>> this.#bits]!.next[slot & this.#mask] = next;
  }

  /** The head of the key of a message; `NONE` if no message of it is linked. */
  #head(slot: Slot): Slot {
    let head = this.#heads.first(this.hashOf(slot));
    while (head !== NONE && !this.#isSameKey(head, slot)) head = this.nextOf(head);
    return head;
  }

  #isSameKey(a: Slot, b: Slot): boolean {
    const first = this.#pages[a >>> this.#bits]!;
    const second = this.#pages[b >>> this.#bits]!;
    return (
      first.low[a & this.#mask] === second.low[b & this.#mask] &&
      first.high[a & this.#mask] === second.high[b & this.#mask] &&
      this.#rows.topicOf(a) === this.#rows.topicOf(b)
    );
  }

  #aheadOf(slot: Slot): Slot {
    return this.#pages[slot >>> this.#bits]!.ahead[slot & this.#mask]!;
  }

  #behindOf(slot: Slot): Slot {
    return this.#pages[slot >>> this.#bits]!.behind[slot & this.#mask]!;
  }

  /** Makes `behind` follow `slot`. */
  #join(slot: Slot, behind: Slot): void {
    this.#pages[slot >>> this.#bits]!.behind[slot & this.#mask] = behind;
    this.#pages[behind >>> this.#bits]!.ahead[behind & this.#mask] = slot;
  }

  #newPage(): Page {
    const page = this.#spare ?? new Page(this.#mask + 1);
    this.#spare = undefined;
    return page;
  }

  #forget(slot: Slot): void {
    const page = this.#pages[slot >>> this.#bits]!;
    page.live -= 1;
    if (page.live > 0) return;
    this.#pages[slot >>> this.#bits] = undefined;
    this.#spare ??= page;
  }
}

/** 64 bits of a key (cyrb53 without its last step). */
function hashOfKey(key: string, seed: number): readonly [number, number] {
  let a = 0xdeadbeef ^ seed;
  let b = 0x41c6ce57 ^ seed;
  for (let at = 0; at < key.length; at += 1) {
    const unit = key.charCodeAt(at);
    a = Math.imul(a ^ unit, 2654435761);
    b = Math.imul(b ^ unit, 1597334677);
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return [a >>> 0, b >>> 0];
}
