/**
 * A set of content ids that stores eight bytes of each, for sets of many millions.
 *
 * Contract: an id that was added is found. An id that was not added is found too if another one begins with the same eight
 * bytes: the caller then keeps a little garbage and loses nothing.
 * Bound: `ids_max` ids, about 12 to 24 bytes each. Overflow: `isOverflowed` is set and every id counts as found.
 */
const SLOTS_MIN = 1024;
const LOAD_MAX = 2 / 3;

export class IdSet {
  readonly #ids_max: number;
  /** Pairs of words, open addressing. A pair of zeros is a free slot. */
  #words = new Uint32Array(2 * SLOTS_MIN);
  #size = 0;
  #hasZero = false;
  #overflowed = false;

  constructor(init: { ids_max: number }) {
    this.#ids_max = init.ids_max;
  }

  get size(): number {
    return this.#size + (this.#hasZero ? 1 : 0);
  }

  get isOverflowed(): boolean {
    return this.#overflowed;
  }

  add(id: Uint8Array): void {
    const first = wordAt(id, 0);
    const second = wordAt(id, 4);
    if (first === 0 && second === 0) this.#hasZero = true;
    else if (this.size >= this.#ids_max) this.#overflow();
    else if (this.#insert(first, second)) this.#grow();
  }

  has(id: Uint8Array): boolean {
    if (this.#overflowed) return true;
    const first = wordAt(id, 0);
    const second = wordAt(id, 4);
    if (first === 0 && second === 0) return this.#hasZero;
    const at = this.#slotOf(first, second);
    return this.#words[at] !== 0 || this.#words[at + 1] !== 0;
  }

  /** Where the pair is, or the free slot where it would be. Ids are hashes: their first word is as good as any. */
  #slotOf(first: number, second: number): number {
    const mask = this.#words.length - 1;
    let at = (first * 2) & mask;
    for (;;) {
      const a = this.#words[at]!;
      const b = this.#words[at + 1]!;
      if ((a === first && b === second) || (a === 0 && b === 0)) return at;
      at = (at + 2) & mask;
    }
  }

  #insert(first: number, second: number): boolean {
    if (this.#overflowed) return false;
    const at = this.#slotOf(first, second);
    if (this.#words[at] === first && this.#words[at + 1] === second) return false;
    this.#words[at] = first;
    this.#words[at + 1] = second;
    this.#size += 1;
    return true;
  }

  #grow(): void {
    if (this.#size * 2 < this.#words.length * LOAD_MAX) return;
    const old = this.#words;
    this.#words = new Uint32Array(old.length * 2);
    this.#size = 0;
    for (let at = 0; at < old.length; at += 2) {
      if (old[at] !== 0 || old[at + 1] !== 0) this.#insert(old[at]!, old[at + 1]!);
    }
  }

  #overflow(): void {
    this.#overflowed = true;
    this.#words = new Uint32Array(2);
    this.#size = 0;
  }
}

function wordAt(id: Uint8Array, at: number): number {
  return (id[at]! | (id[at + 1]! << 8) | (id[at + 2]! << 16) | (id[at + 3]! << 24)) >>> 0;
}
