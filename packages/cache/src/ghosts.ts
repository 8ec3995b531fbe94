/**
 * Fingerprints of keys that were evicted or offered not long ago.
 *
 * Contract: `take` is true for a key that was added within the last `window` of weight, with few exceptions: a crowded
 * table forgets some earlier, and keys with the same fingerprint (1 in 2^30) are taken for each other. O(1): at most 64
 * characters of a key are read. No key is retained.
 * Bound: 12 bytes for each of at most `slots_max` slots; below 16 slots no key is remembered. The table begins small and
 * doubles while it is more than half full.
 *
 *     const ghosts = new Ghosts({ window: 64 * MIB, slots_max: 65_536 });
 *     ghosts.add('key', 4096); // weight 4096 passes by
 *     ghosts.take('key'); // true, and forgotten
 */
import { sched } from '@ron/kernel';

export interface GhostsInit {
  /** How much weight may be added after a key until it is forgotten. */
  window: number;
  slots_max: number;
}

const WAYS = 4;
const SLOTS_MIN = 16;
const SLOT_BYTES = 12;
/** Characters that are read at each end of a key. */
const KEY_CHARS = 32;

export class Ghosts {
  readonly #window: number;
  readonly #slots_max: number;
  /** So that a client cannot choose keys that collide. */
  readonly #seed: number;
  /** A fingerprint is never 0: that is an empty slot. */
  #prints = new Uint32Array(0);
  /** The clock when the key was added. */
  #added = new Float64Array(0);
  /** Weight added since the start. */
  #clock = 0;
  /** Slots in use, those of forgotten keys included. */
  #filled = 0;

  constructor(init: GhostsInit) {
    this.#window = init.window;
    this.#slots_max = init.slots_max < SLOTS_MIN ? 0 : 2 ** Math.floor(Math.log2(init.slots_max));
    this.#seed = this.#slots_max === 0 ? 0 : Math.floor(sched.random() * 2 ** 32) | 0;
  }

  get bytes(): number {
    return this.#prints.length * SLOT_BYTES;
  }

  has(key: string): boolean {
    return this.#find(this.#printOf(key)) >= 0;
  }

  /** Whether the key is here; it is forgotten. */
  take(key: string): boolean {
    const slot = this.#find(this.#printOf(key));
    if (slot < 0) return false;
    this.#prints[slot] = 0;
    this.#filled -= 1;
    return true;
  }

  add(key: string, weight: number): void {
    this.#clock += weight;
    if (this.#slots_max === 0) return;
    const { length } = this.#prints;
    // At its bound a full table needs no rebuild: the oldest keys of each set make room.
    if (length < this.#slots_max && this.#filled >= length / 2) this.#rebuild();
    this.#put(this.#printOf(key), this.#clock);
  }

  clear(): void {
    this.#prints = new Uint32Array(0);
    this.#added = new Float64Array(0);
    this.#filled = 0;
  }

  #find(print: number): number {
    if (this.#prints.length === 0) return -1;
    const first = this.#setOf(print);
    for (let slot = first; slot < first + WAYS; slot++) {
      if (this.#prints[slot] === print) return this.#isLive(slot) ? slot : -1;
    }
    return -1;
  }

  /** Takes the place of the same key, of an empty slot or of the oldest key, in this order. */
  #put(print: number, clock: number): void {
    const first = this.#setOf(print);
    let chosen = first;
    for (let slot = first; slot < first + WAYS; slot++) {
      if (this.#prints[slot] === print) {
        this.#added[slot] = clock;
        return;
      }
      if (this.#age(slot) > this.#age(chosen)) chosen = slot;
    }
    if (this.#prints[chosen] === 0) this.#filled += 1;
    this.#prints[chosen] = print;
    this.#added[chosen] = clock;
  }

  /** Drops the keys that the window has passed, and doubles the table if the others fill more than a quarter of it. */
  #rebuild(): void {
    const [prints, added] = [this.#prints, this.#added];
    let live = 0;
    for (let slot = 0; slot < prints.length; slot++) live += Number(this.#isLive(slot));
    const needed = live > prints.length / 4 ? prints.length * 2 : prints.length;
    const slots = Math.min(Math.max(SLOTS_MIN, needed), this.#slots_max);
    this.#filled = 0;
    this.#prints = new Uint32Array(slots);
    this.#added = new Float64Array(slots);
    for (let slot = 0; slot < prints.length; slot++) {
      if (prints[slot] !== 0 && this.#clock - added[slot]! <= this.#window) this.#put(prints[slot]!, added[slot]!);
    }
  }

  #age(slot: number): number {
    return this.#prints[slot] === 0 ? Infinity : this.#clock - this.#added[slot]!;
  }

  #isLive(slot: number): boolean {
    return this.#prints[slot] !== 0 && this.#clock - this.#added[slot]! <= this.#window;
  }

  #setOf(print: number): number {
    return (print & (this.#prints.length / WAYS - 1)) * WAYS;
  }

  #printOf(key: string): number {
    const { length } = key;
    let mixed = this.#seed ^ length;
    const head = Math.min(length, KEY_CHARS);
    for (let at = 0; at < head; at++) mixed = Math.imul(mixed ^ key.charCodeAt(at), 0x01000193);
    for (let at = Math.max(head, length - KEY_CHARS); at < length; at++) {
      mixed = Math.imul(mixed ^ key.charCodeAt(at), 0x01000193);
    }
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
    mixed ^= mixed >>> 16;
    return mixed >>> 0 || 1;
  }
}
