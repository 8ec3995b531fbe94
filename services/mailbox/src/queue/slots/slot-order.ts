/**
 * Slots in the order of their sequence numbers, some of them visible.
 *
 * Contract: `visible` returns visible slots by sequence number, `after` returns all. A slot at the end, the usual place of a
 * new one, is added in O(1); others and removals take a binary search and a move inside one block.
 * Bound: 4 bytes for each slot in a FIFO; blocks of 512 that a removal leaves less than 3/4 full together are joined. A search for
 * a visible slot visits at most each block once, and the slots of one block.
 */
import { NONE, type Slot } from '../states.ts';

export interface OrderRows {
  seqOf(slot: Slot): number;
  isVisible(slot: Slot): boolean;
}

const BLOCK_SLOTS = 512;
const JOINED_MAX = (BLOCK_SLOTS * 3) / 4;

interface Block {
  readonly slots: Int32Array;
  begin: number;
  end: number;
  visible: number;
  /** No slot below this place is visible. */
  hidden: number;
}

export class SlotOrder {
  readonly #rows: OrderRows;
  readonly #blocks: Block[] = [];
  #size = 0;
  #visible = 0;
  /** No block below has a visible slot. */
  #lowest = 0;

  constructor(rows: OrderRows) {
    this.#rows = rows;
  }

  get size(): number {
    return this.#size;
  }

  get visible_size(): number {
    return this.#visible;
  }

  get bytes(): number {
    return this.#blocks.length * BLOCK_SLOTS * Int32Array.BYTES_PER_ELEMENT;
  }

  first(): Slot {
    const block = this.#blocks[0];
    return block === undefined ? NONE : block.slots[block.begin]!;
  }

  /** Adds a slot that `isVisible` does not hold for. */
  add(slot: Slot): void {
    const seq = this.#rows.seqOf(slot);
    const last = this.#blocks.at(-1);
    this.#size += 1;
    if (last === undefined || this.#rows.seqOf(last.slots[last.end - 1]!) < seq) this.#append(last, slot);
    else this.#insert(this.#blockOf(seq), seq, slot);
  }

  /** Removes a slot that `isVisible` does not hold for. */
  remove(slot: Slot): void {
    const seq = this.#rows.seqOf(slot);
    const index = this.#blockOf(seq);
    const block = this.#blocks[index]!;
    const at = this.#search(block, seq);
    if (at === block.begin) block.begin += 1;
    else {
      block.slots.copyWithin(at, at + 1, block.end);
      block.end -= 1;
      if (at < block.hidden) block.hidden -= 1;
    }
    this.#size -= 1;
    this.#join(index);
  }

  /** `isVisible` holds for the slot from now on. */
  show(slot: Slot): void {
    const seq = this.#rows.seqOf(slot);
    const index = this.#blockOf(seq);
    const block = this.#blocks[index]!;
    const at = block.slots[block.end - 1] === slot ? block.end - 1 : this.#search(block, seq);
    block.visible += 1;
    if (at < block.hidden) block.hidden = at;
    this.#visible += 1;
    if (index < this.#lowest) this.#lowest = index;
  }

  /** `isVisible` does not hold for the slot any more. */
  hide(slot: Slot): void {
    this.#blocks[this.#blockOf(this.#rows.seqOf(slot))]!.visible -= 1;
    this.#visible -= 1;
  }

  /** Up to `max` visible slots, in order. */
  visible(max: number): Slot[] {
    const found: Slot[] = [];
    const wanted = Math.min(max, this.#visible);
    for (let index = this.#lowest; found.length < wanted; index += 1) {
      const block = this.#blocks[index]!;
      if (block.visible === 0) continue;
      if (found.length === 0) this.#lowest = index;
      this.#collect(block, Math.min(wanted, found.length + block.visible), found);
    }
    return found;
  }

  /** Adds visible slots of the block to `found` until it has `size` of them. */
  #collect(block: Block, size: number, found: Slot[]): void {
    let at = Math.max(block.begin, block.hidden);
    while (!this.#rows.isVisible(block.slots[at]!)) at += 1;
    block.hidden = at;
    for (; found.length < size; at += 1) {
      const slot = block.slots[at]!;
      if (this.#rows.isVisible(slot)) found.push(slot);
    }
  }

  /** Up to `max` slots with a higher sequence number than `seq`, in order. */
  after(seq: number, max: number): Slot[] {
    const found: Slot[] = [];
    if (this.#size === 0) return found;
    let index = this.#blockOf(seq + 1);
    let at = this.#search(this.#blocks[index]!, seq + 1);
    while (found.length < max && index < this.#blocks.length) {
      const block = this.#blocks[index]!;
      if (at >= block.end) {
        index += 1;
        at = this.#blocks[index]?.begin ?? 0;
      } else found.push(block.slots[at++]!);
    }
    return found;
  }

  /** The last block that begins at or below `seq`, or the first one. */
  #blockOf(seq: number): number {
    let low = 0;
    let high = this.#blocks.length - 1;
    // New messages are in the last block, and those that are taken or settled mostly in the first one.
    if (high > 0 && this.#beginOf(high) <= seq) return high;
    if (high > 0 && this.#beginOf(1) > seq) return 0;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (this.#beginOf(middle) <= seq) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #beginOf(index: number): number {
    const block = this.#blocks[index]!;
    return this.#rows.seqOf(block.slots[block.begin]!);
  }

  /** The place of the first slot in the block that is not below `seq`. */
  #search(block: Block, seq: number): number {
    let low = block.begin;
    let high = block.end;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#rows.seqOf(block.slots[middle]!) < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #append(last: Block | undefined, slot: Slot): void {
    let block = last;
    if (block !== undefined && block.end === BLOCK_SLOTS && block.begin >= BLOCK_SLOTS / 2) compact(block);
    if (block === undefined || block.end === BLOCK_SLOTS) {
      block = newBlock();
      this.#blocks.push(block);
    }
    block.slots[block.end++] = slot;
  }

  #insert(at_block: number, seq: number, slot: Slot): void {
    let index = at_block;
    let block = this.#blocks[index]!;
    if (block.end - block.begin === BLOCK_SLOTS) {
      this.#split(index);
      index = this.#blockOf(seq);
      block = this.#blocks[index]!;
    }
    if (block.end === BLOCK_SLOTS) compact(block);
    const at = this.#search(block, seq);
    block.slots.copyWithin(at + 1, at, block.end);
    block.slots[at] = slot;
    block.end += 1;
  }

  /** Moves the upper half of a full block into a new one. */
  #split(index: number): void {
    const block = this.#blocks[index]!;
    const added = newBlock();
    const middle = BLOCK_SLOTS / 2;
    added.slots.set(block.slots.subarray(middle, block.end));
    added.end = block.end - middle;
    block.end = middle;
    for (let at = 0; at < added.end; at += 1) if (this.#rows.isVisible(added.slots[at]!)) added.visible += 1;
    block.visible -= added.visible;
    block.hidden = Math.min(block.hidden, middle);
    this.#blocks.splice(index + 1, 0, added);
    if (index < this.#lowest) this.#lowest = index;
  }

  /** Drops an empty block, and joins a small one with the next or the previous one. */
  #join(index: number): void {
    const block = this.#blocks[index]!;
    const size = block.end - block.begin;
    if (size === 0) this.#drop(index);
    else if (size > JOINED_MAX / 2) return;
    else if (this.#fits(index, index + 1)) this.#merge(index);
    else if (this.#fits(index - 1, index)) this.#merge(index - 1);
  }

  #fits(index: number, next: number): boolean {
    const a = this.#blocks[index];
    const b = this.#blocks[next];
    return a !== undefined && b !== undefined && a.end - a.begin + b.end - b.begin <= JOINED_MAX;
  }

  /** Moves the slots of the block after `index` to the end of the block `index`. */
  #merge(index: number): void {
    const block = this.#blocks[index]!;
    const gone = this.#blocks[index + 1]!;
    compact(block);
    block.slots.set(gone.slots.subarray(gone.begin, gone.end), block.end);
    block.end += gone.end - gone.begin;
    block.visible += gone.visible;
    this.#drop(index + 1);
    if (index < this.#lowest) this.#lowest = index;
  }

  #drop(index: number): void {
    this.#blocks.splice(index, 1);
    if (index < this.#lowest) this.#lowest -= 1;
  }
}

function newBlock(): Block {
  return { slots: new Int32Array(BLOCK_SLOTS), begin: 0, end: 0, visible: 0, hidden: 0 };
}

function compact(block: Block): void {
  if (block.begin === 0) return;
  block.slots.copyWithin(0, block.begin, block.end);
  block.end -= block.begin;
  block.hidden = Math.max(0, block.hidden - block.begin);
  block.begin = 0;
}
