/**
 * The right edge of a growing tree: all that is needed to go on with it.
 *
 *     7 leaves:    [ 0 1 2 3 ] [ 4 5 ] [ 6 ]      three full subtrees, whose hashes are the peaks
 *
 * Promise: after n leaves the root is that of RFC 6962 over them. Each hash that a tile holds is given to `onTileHash`
 * once, when the last leaf below it arrives, in order within its level.
 * Bound: one hash for each bit of the size, at most 53. Cancellation: none, nothing waits.
 */
import { nodeHash } from './hash.ts';
import { foldPeaks, subtreesOf, type HashReader } from './tree.ts';
import { TILE_HEIGHT } from '../tiles/tiles.ts';

export class Frontier {
  /** By height: the hash of the full subtree that ends the tree there, if there is one. */
  readonly #peaks: (Uint8Array | undefined)[];
  #size: number;

  private constructor(size: number, peaks: (Uint8Array | undefined)[]) {
    this.#size = size;
    this.#peaks = peaks;
  }

  static empty(): Frontier {
    return new Frontier(0, []);
  }

  /** The edge of the first `size` leaves, read from what was kept. */
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
    onTileHash(0, leaf);
    let hash = leaf;
    let height = 0;
    for (let left = this.#peaks[0]; left !== undefined; left = this.#peaks[height]) {
      hash = nodeHash(left, hash);
      this.#peaks[height] = undefined;
      height += 1;
      if (height % TILE_HEIGHT === 0) onTileHash(height / TILE_HEIGHT, hash);
    }
    this.#peaks[height] = hash;
    this.#size += 1;
  }

  root(): Uint8Array {
    return foldPeaks(this.#peaks.filter((peak) => peak !== undefined).toReversed());
  }
}
