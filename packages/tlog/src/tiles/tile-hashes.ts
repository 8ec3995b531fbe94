/**
 * Subtree hashes for proofs, computed from tiles.
 *
 * A tile stores the lowest of its eight levels; the others are computed on demand. That is most of the cost of a proof, so
 * tiles are cached together with their computed levels (the first hashes of a tile never change), and all proofs of a log
 * share the tiles near its root and at its end.
 * Bound: the cache holds `tiles_max` tiles of at most 16 KiB. Overflow: the least recently used tile is evicted.
 */
import { assert } from '@ron/kernel';
import { HASH_BYTES, hashPairs } from '../tree/hash.ts';
import { LEVELS_MAX, TILE_HEIGHT, widthAt } from './tiles.ts';
import type { HashReader } from '../tree/tree.ts';

/** Two per level. */
const TILES_OF_A_PROOF = 2 * (LEVELS_MAX + 1);

/** Reads the first `width` hashes of a tile. */
export type ReadHashes = (level: number, index: number, width: number) => Promise<Uint8Array>;

/** A tile with the levels above its hashes. */
class TileTree {
  readonly #levels: Uint8Array[];

  constructor(hashes: Uint8Array) {
    this.#levels = [hashes];
  }

  /** The hash over the tile's `2^height` hashes from `index * 2^height`. */
  node(height: number, index: number): Uint8Array {
    while (this.#levels.length <= height) this.#levels.push(hashPairs(this.#levels.at(-1)!));
    const at = index * HASH_BYTES;
    const hash = this.#levels[height]!.subarray(at, at + HASH_BYTES);
    assert(hash.length === HASH_BYTES, 'the subtree is within the tree');
    return hash;
  }
}

export class TileCache {
  readonly #tiles = new Map<string, TileTree>();
  readonly #tiles_max: number;

  constructor(tiles_max: number) {
    this.#tiles_max = tiles_max;
  }

  get(key: string): TileTree | undefined {
    const found = this.#tiles.get(key);
    if (found === undefined) return undefined;
    // A map iterates in insertion order: reinsert the tile as the most recently used.
    this.#tiles.delete(key);
    this.#tiles.set(key, found);
    return found;
  }

  set(key: string, tile: TileTree): void {
    this.#tiles.set(key, tile);
    if (this.#tiles.size <= this.#tiles_max) return;
    const [oldest] = this.#tiles.keys();
    this.#tiles.delete(oldest!);
  }
}

export class TileHashes implements HashReader {
  readonly #read: ReadHashes;
  readonly #size: number;
  readonly #cache: TileCache;

  /** Reads tiles of a tree of `size` leaves. */
  constructor(size: number, read: ReadHashes, cache = new TileCache(TILES_OF_A_PROOF)) {
    this.#size = size;
    this.#read = read;
    this.#cache = cache;
  }

  async node(height: number, index: number): Promise<Uint8Array> {
    const within = height % TILE_HEIGHT;
    const across = 2 ** (TILE_HEIGHT - within);
    const tile = Math.floor(index / across);
    const tree = await this.#tile(Math.floor(height / TILE_HEIGHT), tile);
    return tree.node(within, index - tile * across);
  }

  async #tile(level: number, index: number): Promise<TileTree> {
    const width = widthAt(level, index, this.#size);
    assert(width > 0, 'the tile is within the tree');
    const key = `${level}/${index}/${width}`;
    const known = this.#cache.get(key);
    if (known !== undefined) return known;
    const hashes = await this.#read(level, index, width);
    assert(hashes.length === width * HASH_BYTES, 'a tile has the requested width');
    const tile = new TileTree(hashes);
    this.#cache.set(key, tile);
    return tile;
  }
}
