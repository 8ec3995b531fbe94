/**
 * A min-heap of slots with removal from any place. The rows hold the place of each slot, so a slot is in one heap at a time.
 *
 * Contract: `first` is a slot that no other one is before. O(log n) for `add`, `remove` and `changed`; four children for each node,
 * in pages of 1024, so that growth copies nothing.
 * Bound: 4 bytes for each slot.
 */
import { NONE, type Slot } from '../states.ts';

export interface HeapRows {
  isBefore(a: Slot, b: Slot): boolean;
  /** `NONE` if the slot is not in the heap. */
  heapIndexOf(slot: Slot): number;
  setHeapIndex(slot: Slot, index: number): void;
}

const PAGE_BITS = 10;
const PAGE_SLOTS = 1 << PAGE_BITS;
const PAGE_MASK = PAGE_SLOTS - 1;
/** log2 of the number of children. */
const FAN_BITS = 2;

export class SlotHeap {
  readonly #rows: HeapRows;
  readonly #pages: Int32Array[] = [];
  #size = 0;

  constructor(rows: HeapRows) {
    this.#rows = rows;
  }

  get size(): number {
    return this.#size;
  }

  get bytes(): number {
    return this.#pages.length * PAGE_SLOTS * Int32Array.BYTES_PER_ELEMENT;
  }

  first(): Slot {
    return this.#size === 0 ? NONE : this.#at(0);
  }

  has(slot: Slot): boolean {
    return this.#rows.heapIndexOf(slot) !== NONE;
  }

  add(slot: Slot): void {
    const index = this.#size;
    if (index >>> PAGE_BITS === this.#pages.length) this.#pages.push(new Int32Array(PAGE_SLOTS));
    this.#size += 1;
    this.#siftUp(index, slot);
  }

  remove(slot: Slot): void {
    const index = this.#rows.heapIndexOf(slot);
    this.#rows.setHeapIndex(slot, NONE);
    this.#size -= 1;
    const last = this.#at(this.#size);
    // One empty page is kept, so that a heap at the edge of a page does not allocate with each `add`.
    if (this.#pages.length > (this.#size >>> PAGE_BITS) + 2) this.#pages.pop();
    if (last !== slot) this.#sift(index, last);
  }

  /** The order of the slot may have changed. */
  changed(slot: Slot): void {
    this.#sift(this.#rows.heapIndexOf(slot), slot);
  }

  #at(index: number): Slot {
    return this.#pages[index >>> PAGE_BITS]![index & PAGE_MASK]!;
  }

  #put(index: number, slot: Slot): void {
    this.#pages[index >>> PAGE_BITS]![index & PAGE_MASK] = slot;
    this.#rows.setHeapIndex(slot, index);
  }

  #sift(index: number, slot: Slot): void {
    if (index > 0 && this.#rows.isBefore(slot, this.#at((index - 1) >>> FAN_BITS))) this.#siftUp(index, slot);
    else this.#siftDown(index, slot);
  }

  #siftUp(from: number, slot: Slot): void {
    let index = from;
    while (index > 0) {
      const parent = (index - 1) >>> FAN_BITS;
      const above = this.#at(parent);
      if (!this.#rows.isBefore(slot, above)) break;
      this.#put(index, above);
      index = parent;
    }
    this.#put(index, slot);
  }

  #siftDown(from: number, slot: Slot): void {
    let index = from;
    for (;;) {
      const child = this.#leastChild(index);
      if (child === NONE) break;
      const below = this.#at(child);
      if (!this.#rows.isBefore(below, slot)) break;
      this.#put(index, below);
      index = child;
    }
    this.#put(index, slot);
  }

  #leastChild(index: number): number {
    const begin = (index << FAN_BITS) + 1;
    if (begin >= this.#size) return NONE;
    const end = Math.min(begin + (1 << FAN_BITS), this.#size);
    let least = begin;
    for (let child = begin + 1; child < end; child += 1)
      if (this.#rows.isBefore(this.#at(child), this.#at(least))) least = child;
    return least;
  }
}
