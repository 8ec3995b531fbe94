/**
 * Numbers (slots) for the rows of a table whose columns lie in pages.
 *
 * Contract: `take` gives the lowest page with a free slot, so that a table that shrinks empties its high pages. An empty page is
 * given back; one is kept for the next growth. Growth allocates one page and copies no column.
 * Bound: a page has 4096 slots by default. `take` visits at most all pages, one step each (256 at 1 M rows).
 *
 *     const pages = new SlotPages((slots) => ({ next: new Int32Array(slots) }));
 *     const slot = pages.take();
 *     pages.of(slot).next[slot & pages.mask] = NONE;
 */
import { NONE, type Slot } from '../states.ts';

/** log2 of the slots of a page. Models use smaller pages. */
export const PAGE_BITS = 12;

/** A page of columns. `next` also links the free slots. */
export interface SlotPage {
  readonly next: Int32Array;
}

interface PageUse<P> {
  readonly page: P;
  live: number;
  /** Slots from here on were never used. */
  fresh: number;
  free: Slot;
}

export class SlotPages<P extends SlotPage> {
  /** `slot & mask` is the place of a slot in its page. */
  readonly mask: number;
  readonly #bits: number;
  readonly #make: (slots: number) => P;
  readonly #uses: (PageUse<P> | undefined)[] = [];
  #spare: P | undefined;
  /** No page below has a free slot. */
  #lowest = 0;
  #live = 0;

  constructor(make: (slots: number) => P, page_bits = PAGE_BITS) {
    this.#make = make;
    this.#bits = page_bits;
    this.mask = (1 << page_bits) - 1;
  }

  /** Slots in use. */
  get live(): number {
    return this.#live;
  }

  /** Pages in memory. */
  get pages(): number {
    let count = this.#spare === undefined ? 0 : 1;
    for (const use of this.#uses) if (use !== undefined) count += 1;
    return count;
  }

  /** The page of a slot that is in use. */
  of(slot: Slot): P {
    return this.#uses[slot >>> this.#bits]!.page;
  }

  take(): Slot {
    const index = this.#firstWithRoom();
    const use = (this.#uses[index] ??= { page: this.#newPage(), live: 0, fresh: 0, free: NONE });
    use.live += 1;
    this.#live += 1;
    const slot = use.free;
    if (slot === NONE) return (index << this.#bits) + use.fresh++;
    use.free = use.page.next[slot & this.mask]!;
    return slot;
  }

  give(slot: Slot): void {
    const index = slot >>> this.#bits;
    const use = this.#uses[index]!;
    use.page.next[slot & this.mask] = use.free;
    use.free = slot;
    use.live -= 1;
    this.#live -= 1;
    if (index < this.#lowest) this.#lowest = index;
    if (use.live === 0) this.#dropPage(index, use.page);
  }

  #firstWithRoom(): number {
    for (let index = this.#lowest; ; index += 1) {
      const use = this.#uses[index];
      if (use !== undefined && use.live > this.mask) continue;
      this.#lowest = index;
      return index;
    }
  }

  #newPage(): P {
    const page = this.#spare ?? this.#make(this.mask + 1);
    this.#spare = undefined;
    return page;
  }

  #dropPage(index: number, page: P): void {
    this.#uses[index] = undefined;
    this.#spare ??= page;
    while (this.#uses.length > 0 && this.#uses.at(-1) === undefined) this.#uses.pop();
  }
}
