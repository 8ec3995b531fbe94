/**
 * Subtree hashes out of tiles: what a proof needs, from wherever tiles come.
 *
 * Bound: keeps the tiles of one proof, two for each level; make a new one for each proof. Cancellation: none here.
 */
import { assert } from '@ron/kernel';
import { HASH_BYTES, reduceHashes } from './hash.ts';
import { TILE_HEIGHT, TILE_WIDTH, widthAt } from './tiles.ts';
import type { HashReader } from './tree.ts';

/** Reads the first `width` hashes of a tile. */
export type ReadHashes = (level: number, index: number, width: number) => Promise<Uint8Array>;

export class TileHashes implements HashReader {
  readonly #read: ReadHashes;
  readonly #size: number;
  readonly #tiles = new Map<string, Uint8Array>();

  /** Tiles of a tree of `size` leaves. */
  constructor(size: number, read: ReadHashes) {
    this.#size = size;
    this.#read = read;
  }

  async node(height: number, index: number): Promise<Uint8Array> {
    const level = Math.floor(height / TILE_HEIGHT);
    const count = 2 ** (height % TILE_HEIGHT);
    const first = index * count;
    const tile = Math.floor(first / TILE_WIDTH);
    const hashes = await this.#tile(level, tile);
    const at = (first - tile * TILE_WIDTH) * HASH_BYTES;
    assert(at + count * HASH_BYTES <= hashes.length, 'the subtree is within the tree');
    return reduceHashes(Buffer.from(hashes.subarray(at, at + count * HASH_BYTES)), count);
  }

  async #tile(level: number, index: number): Promise<Uint8Array> {
    const key = `${level}/${index}`;
    const known = this.#tiles.get(key);
    if (known !== undefined) return known;
    const width = widthAt(level, index, this.#size);
    assert(width > 0, 'the tile is within the tree');
    const hashes = await this.#read(level, index, width);
    assert(hashes.length === width * HASH_BYTES, 'a tile is as wide as was asked for');
    this.#tiles.set(key, hashes);
    return hashes;
  }
}
