/**
 * A set of ids in fixed memory, for marking needed contents among any number: a Bloom filter.
 *
 * Contract: an id that was added is found. An id that was not added may be found too: with two bytes
 * for each id about 1 in 500, with less memory more often. The chance is drawn anew for each filter, so garbage that one
 * sweep keeps because of it goes in a later one.
 * Bound: two bytes for each expected id, at most `bytes_max`. There is no overflow: more ids raise the chance.
 */
import { sched } from '@ron/kernel';

const BITS_PER_ID = 16;
const PROBES_MAX = 6;
const BYTES_MIN = 64;

export class IdFilter {
  readonly #words: Uint32Array;
  readonly #bits: number;
  readonly #probes: number;
  readonly #salt: number;

  constructor(init: { ids: number; bytes_max: number }) {
    const bytes = Math.max(BYTES_MIN, Math.min((init.ids * BITS_PER_ID) / 8, init.bytes_max));
    this.#words = new Uint32Array(Math.ceil(bytes / 4));
    this.#bits = this.#words.length * 32;
    // The best number of probes is 0.69 for each bit that an id has.
    this.#probes = Math.max(1, Math.min(PROBES_MAX, Math.round((0.69 * this.#bits) / Math.max(1, init.ids))));
    this.#salt = Math.floor(sched.random() * 2 ** 32);
  }

  get bytes(): number {
    return this.#words.byteLength;
  }

  add(id: Uint8Array): void {
    let at = this.#first(id);
    const step = this.#step(id);
    for (let probe = 0; probe < this.#probes; probe++) {
      this.#words[Math.floor(at / 32)]! |= 1 << (at % 32);
      at = (at + step) % this.#bits;
    }
  }

  has(id: Uint8Array): boolean {
    let at = this.#first(id);
    const step = this.#step(id);
    for (let probe = 0; probe < this.#probes; probe++) {
      if ((this.#words[Math.floor(at / 32)]! & (1 << (at % 32))) === 0) return false;
      at = (at + step) % this.#bits;
    }
    return true;
  }

  /** The bit of the first probe. 53 bits of the id and the salt: there may be more than 2^32 bits. */
  #first(id: Uint8Array): number {
    const high = mixed(wordAt(id, 0) ^ this.#salt);
    const low = mixed(wordAt(id, 4) + this.#salt);
    return ((high & 0x1f_ff_ff) * 2 ** 32 + low) % this.#bits;
  }

  #step(id: Uint8Array): number {
    return 1 + (mixed(wordAt(id, 8) ^ Math.imul(this.#salt, 0x9e_37_79_b1)) % (this.#bits - 1));
  }
}

/** Spreads each bit of a word over all of them. */
function mixed(word: number): number {
  let hash = word | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85_eb_ca_6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2_b2_ae_35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

function wordAt(id: Uint8Array, at: number): number {
  return id[at]! | (id[at + 1]! << 8) | (id[at + 2]! << 16) | (id[at + 3]! << 24);
}
