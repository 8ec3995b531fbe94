/** Recomputes a tree from its leaves, tile by tile. Bound: one tile per level. */
import { DamageError } from '../log/damage.ts';
import { Frontier } from './frontier.ts';
import { HASH_BYTES, hashPairs } from './hash.ts';
import type { KnownCheckpoint } from '../log/recovery.ts';
import { TILE_WIDTH } from '../tiles/tiles.ts';
import { isSame } from './tree.ts';

export interface WalkedTile {
  readonly level: number;
  readonly index: number;
  readonly width: number;
  /** The expected content. */
  readonly hashes: Buffer;
}

export class TreeWalk {
  readonly #frontier = Frontier.empty();
  /** By level: the hashes of the tile that is still partial. */
  readonly #open: Uint8Array[][] = [];
  readonly #full: WalkedTile[] = [];
  readonly #full_count: number[] = [];
  /** Checkpoints that are stored elsewhere, smallest first. */
  readonly #known: KnownCheckpoint[];

  constructor(known: readonly KnownCheckpoint[] = []) {
    this.#known = known.filter(({ size }) => size > 0).toSorted((a, b) => a.size - b.size);
  }

  get size(): number {
    return this.#frontier.size;
  }

  /** Compares the root over all leaves with the signed one. */
  expectRoot(root: Uint8Array): void {
    const found = this.#frontier.root();
    if (isSame(found, root)) return;
    const what = `the root over ${this.size} entries is ${hex(found)}, but ${hex(root)} was signed`;
    throw new DamageError('checkpoint', what);
  }

  /** Call it at the end: throws if a known checkpoint is larger than the log. */
  expectKnown(): void {
    const beyond = this.#known.at(-1);
    if (beyond === undefined) return;
    const what = `it covers ${this.size} entries, but ${beyond.by ?? 'a known checkpoint'} covers ${beyond.size}: the log was rolled back`;
    throw new DamageError('checkpoint', what);
  }

  add(leaf: Uint8Array): void {
    this.#frontier.append(leaf, (level, hash) => this.#push(level, hash));
    this.#compareKnown();
  }

  /** Adds the leaves of a full tile, which was removed, by the hash that is stored above it. */
  addTile(tile: Uint8Array): void {
    this.#full_count[0] = (this.#full_count[0] ?? 0) + 1;
    this.#frontier.appendTile(tile, (level, hash) => this.#push(level, hash));
    this.#compareKnown();
  }

  #push(level: number, hash: Uint8Array): void {
    const hashes = (this.#open[level] ??= []);
    hashes.push(hash);
    if (hashes.length === TILE_WIDTH) this.#full.push(this.#take(level));
  }

  #compareKnown(): void {
    while (this.#known[0]?.size === this.size) {
      const { by = 'a known checkpoint', root } = this.#known.shift()!;
      if (isSame(this.#frontier.root(), root)) continue;
      throw new DamageError('entries', `the first ${this.size} entries differ from those that ${by} covers`);
    }
  }

  /** Takes the tiles that have become full since the last call. */
  takeFull(): WalkedTile[] {
    return this.#full.splice(0);
  }

  /** Takes the partial tiles at the right edge. No leaf may be added afterwards. */
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

/** The index of the first hash that differs; undefined if none does. */
export function firstDifference(expected: Uint8Array, found: Uint8Array): number | undefined {
  if (Buffer.compare(expected, found) === 0) return undefined;
  const length = Math.min(expected.length, found.length);
  let at = 0;
  while (at < length && expected[at] === found[at]) at += 1;
  return Math.floor(at / HASH_BYTES);
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
