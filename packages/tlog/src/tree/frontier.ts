/**
 * The right edge of a growing tree: the state that is needed to append to it.
 *
 *     7 leaves:    [ 0 1 2 3 ] [ 4 5 ] [ 6 ]      three full subtrees, whose hashes are the peaks
 *
 * Contract: after n leaves the root is that of RFC 6962 over them. Each hash of a tile is passed to `onTileHash` once, when
 * the last leaf below it arrives, in order within its level.
 * Bound: one hash per bit of the size, at most 53.
 */
import { nodeHash } from './hash.ts';
import { foldPeaks, subtreesOf, type HashReader } from './tree.ts';
import { TILE_HEIGHT } from '../tiles/tiles.ts';

export class Frontier {
  /** By height: the hash of the full subtree of that height at the end of the tree, if there is one. */
  readonly #peaks: (Uint8Array | undefined)[];
  #size: number;

  private constructor(size: number, peaks: (Uint8Array | undefined)[]) {
    this.#size = size;
    this.#peaks = peaks;
  }

  static empty(): Frontier {
    return new Frontier(0, []);
  }

  /** Reads the edge of the first `size` leaves from stored hashes. */
  static async read(reader: HashReader, size: number): Promise<Frontier> {
    const peaks: (Uint8Array | undefined)[] = [];
    for (const { height, index } of subtreesOf(0, size)) peaks[height] = await reader.node(height, index);
    return new Frontier(size, peaks);
  }

  get size(): number {
    return this.#size;
  }

  copy(): Frontier {
    return new Frontier(this.#size, [...this.#peaks]);
  }

  append(leaf: Uint8Array, onTileHash: (level: number, hash: Uint8Array) => void): void {
    this.#append(leaf, 0, onTileHash);
  }

  /** Appends all leaves of a full tile by their hash. The leaves so far must fill their tiles. */
  appendTile(tile: Uint8Array, onTileHash: (level: number, hash: Uint8Array) => void): void {
    this.#append(tile, TILE_HEIGHT, onTileHash);
  }

  #append(subtree: Uint8Array, from: number, onTileHash: (level: number, hash: Uint8Array) => void): void {
    onTileHash(from / TILE_HEIGHT, subtree);
    let hash = subtree;
    let height = from;
    for (let left = this.#peaks[height]; left !== undefined; left = this.#peaks[height]) {
      hash = nodeHash(left, hash);
      this.#peaks[height] = undefined;
      height += 1;
      if (height % TILE_HEIGHT === 0) onTileHash(height / TILE_HEIGHT, hash);
    }
    this.#peaks[height] = hash;
    this.#size += 2 ** from;
  }

  root(): Uint8Array {
    return foldPeaks(this.#peaks.filter((peak) => peak !== undefined).toReversed());
  }
}
