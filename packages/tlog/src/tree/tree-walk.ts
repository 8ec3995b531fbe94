/**
 * A tree that is computed anew from its leaves, tile by tile.
 *
 * Bound: one tile of each level. Cancellation: none, nothing waits.
 */
import { DamageFound } from '../log/damage.ts';
import { Frontier } from './frontier.ts';
import { HASH_BYTES, hashPairs } from './hash.ts';
import type { KnownCheckpoint } from '../log/recovery.ts';
import { TILE_WIDTH } from '../tiles/tiles.ts';
import { isSame } from './tree.ts';

export interface WalkedTile {
  readonly level: number;
  readonly index: number;
  readonly width: number;
  /** What it must hold. */
  readonly hashes: Buffer;
}

export class TreeWalk {
  readonly #frontier = Frontier.empty();
  /** By level: hashes of the tile that is not full yet. */
  readonly #open: Uint8Array[][] = [];
  readonly #full: WalkedTile[] = [];
  readonly #full_count: number[] = [];
  /** What somebody remembers of the beginning of the log, the shortest first. */
  readonly #known: KnownCheckpoint[];

  constructor(known: readonly KnownCheckpoint[] = []) {
    this.#known = known.filter(({ size }) => size > 0).toSorted((a, b) => a.size - b.size);
  }

  get size(): number {
    return this.#frontier.size;
  }

  /** Holds the root over all leaves against the one that was signed. */
  expectRoot(root: Uint8Array): void {
    const found = this.#frontier.root();
    if (isSame(found, root)) return;
    const what = `the root over ${this.size} entries is ${hex(found)}, and ${hex(root)} was signed`;
    throw new DamageFound('checkpoint', what);
  }

  /** That everything which is remembered was walked over; at the end. */
  expectKnown(): void {
    const beyond = this.#known.at(-1);
    if (beyond === undefined) return;
    const what = `it covers ${this.size} entries, and ${beyond.by ?? 'somebody'} knows of ${beyond.size}: the log was put back`;
    throw new DamageFound('checkpoint', what);
  }

  add(leaf: Uint8Array): void {
    this.#frontier.append(leaf, (level, hash) => {
      const hashes = (this.#open[level] ??= []);
      hashes.push(hash);
      if (hashes.length === TILE_WIDTH) this.#full.push(this.#take(level));
    });
    while (this.#known[0]?.size === this.size) {
      const { by = 'somebody', root } = this.#known.shift()!;
      if (isSame(this.#frontier.root(), root)) continue;
      throw new DamageFound('entries', `the first ${this.size} are not those that ${by} knows`);
    }
  }

  /** The tiles that have become full since the last call. */
  takeFull(): WalkedTile[] {
    return this.#full.splice(0);
  }

  /** The tiles at the right edge that are not full. After this, no leaf is added. */
  takeRest(): WalkedTile[] {
    const levels = [...this.#open.keys()].filter((level) => (this.#open[level] ?? []).length > 0);
    return levels.map((level) => this.#take(level));
  }

  /** The hash over a full tile. */
  static rootOfTile(hashes: Uint8Array): Uint8Array {
    let level = hashes;
    while (level.length > HASH_BYTES) level = hashPairs(level);
    return level;
  }

  #take(level: number): WalkedTile {
    const hashes = this.#open[level] ?? [];
    const index = this.#full_count[level] ?? 0;
    this.#open[level] = [];
    this.#full_count[level] = index + 1;
    return { level, index, width: hashes.length, hashes: Buffer.concat(hashes) };
  }
}

/** Which hash differs first; undefined when none does. */
export function firstDifference(expected: Uint8Array, found: Uint8Array): number | undefined {
  if (Buffer.compare(expected, found) === 0) return undefined;
  const length = Math.min(expected.length, found.length);
  let at = 0;
  while (at < length && expected[at] === found[at]) at += 1;
  return Math.floor(at / HASH_BYTES);
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
