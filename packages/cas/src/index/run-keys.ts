/**
 * The part of a run that is kept in memory: for each entry the first four bytes of its id, a fingerprint of all of it,
 * its type and its flags. 10 bytes an entry.
 *
 * Contract: `findKey` finds every entry whose id may be the requested one. A wrong candidate has the same first four bytes
 * and the same 32-bit fingerprint. The fingerprint is keyed with a secret of the index, so a client that chooses ids
 * cannot produce such pairs.
 * Bound: one search costs a few dozen memory reads; ids are hashes, so interpolation finds them.
 */
import { ID_BYTES } from '@ron/log';
import { TABLE_COUNT } from './entry.ts';

/** Below this many entries the search is a bisection. */
const BISECT_MAX = 64;

export interface RunKeys {
  /** The first four bytes of each id, as numbers whose order is that of the bytes. */
  readonly high: Uint32Array<ArrayBuffer>;
  readonly fingerprint: Uint32Array<ArrayBuffer>;
  /** Type and flags. */
  readonly tag: Uint16Array<ArrayBuffer>;
  /** Where each table begins; the last is the number of entries. By table number. */
  readonly start: readonly number[];
}

export const highOf = (id: Uint8Array, at = 0): number =>
  ((id[at]! << 24) | (id[at + 1]! << 16) | (id[at + 2]! << 8) | id[at + 3]!) >>> 0;

/** 32 bits of an id and a secret. */
export function fingerprintOf(id: Uint8Array, secret: number, at = 0): number {
  let hash = secret;
  for (let byte = at; byte < at + ID_BYTES; byte += 4) {
    const word = id[byte]! | (id[byte + 1]! << 8) | (id[byte + 2]! << 16) | (id[byte + 3]! << 24);
    hash = Math.imul(hash ^ word, 0x9e_37_79_b1);
    hash = Math.imul(hash ^ (hash >>> 15), 0x85_eb_ca_77) + secret;
  }
  hash ^= hash >>> 16;
  return hash >>> 0;
}

/** The first entry of a table, from `from` to `to`, whose id does not begin with less than `high`. */
export function lowerBound(keys: Uint32Array, high: number, from: number, to: number): number {
  let low = from;
  let end = to;
  while (end - low > BISECT_MAX) {
    const first = keys[low]!;
    const last = keys[end - 1]!;
    if (high <= first) return low;
    if (high > last) return end;
    const length = end - low;
    const guess = low + Math.floor(((high - first) / (last - first)) * (length - 1));
    // Ids are uniform: the entry lies within a few square roots of the guess. When it does not, bisect once instead.
    const margin = 2 * Math.ceil(Math.sqrt(length));
    const left = Math.max(low, guess - margin);
    const right = Math.min(end, guess + margin);
    const isRight = left === low || keys[left - 1]! < high;
    const isLeft = right === end || keys[right]! >= high;
    if (isRight) low = left;
    else end = left;
    if (isLeft) end = Math.min(end, right);
    else low = Math.max(low, right + 1);
    if (end - low <= length / 2) continue;
    const middle = (low + end) >>> 1;
    if (keys[middle]! < high) low = middle + 1;
    else end = middle;
  }
  while (low < end) {
    const middle = (low + end) >>> 1;
    if (keys[middle]! < high) low = middle + 1;
    else end = middle;
  }
  return low;
}

/** The next entry from `from` on that may be that of an id; -1 when there is none. `from` -1: from the beginning. */
export function findKey(keys: RunKeys, table: number, high: number, fingerprint: number, from = -1): number {
  const end = keys.start[table + 1]!;
  let at = from < 0 ? lowerBound(keys.high, high, keys.start[table]!, end) : from;
  for (; at < end && keys.high[at] === high; at++) if (keys.fingerprint[at] === fingerprint) return at;
  return -1;
}

/** Where each table begins, from how many entries each has. */
export function startsOf(counts: readonly number[]): number[] {
  const start = [0];
  for (let table = 0; table < TABLE_COUNT; table++) start.push(start[table]! + (counts[table] ?? 0));
  return start;
}
