/**
 * Entries that are being appended, and their data in the derived files.
 *
 * Contract: the log does not change until the caller adopts `frontier` and `bytes`. Bound: the hashes of one batch.
 */
import type { Frontier } from './frontier.ts';
import { HASH_BYTES } from './hash.ts';
import { hashesName, OFFSET_BYTES, type LogFiles } from '../log/log-files.ts';
import { hashesAt, TILE_WIDTH } from '../tiles/tiles.ts';

/** The extent of a log. Immutable. */
export interface Extent {
  readonly frontier: Frontier;
  /** Bytes of complete records in `entries`. */
  readonly bytes: number;
}

export class TreeBatch {
  readonly #frontier: Frontier;
  #bytes: number;
  /** The size of the tree before the pending hashes. */
  #from: number;
  #levels: Uint8Array[][] = [];
  #bundleEnds: number[] = [];

  constructor({ frontier, bytes }: Extent) {
    this.#frontier = frontier.copy();
    this.#bytes = bytes;
    this.#from = frontier.size;
  }

  get size(): number {
    return this.#frontier.size;
  }

  get pending(): number {
    return this.size - this.#from;
  }

  root(): Uint8Array {
    return this.#frontier.root();
  }

  /** Adds a leaf whose record ends at `end`. */
  add(leaf: Uint8Array, end: number): void {
    this.#frontier.append(leaf, (level, hash) => (this.#levels[level] ??= []).push(hash));
    this.#bytes = end;
    if (this.#frontier.size % TILE_WIDTH === 0) this.#bundleEnds.push(end);
  }

  extent(): Extent {
    return { frontier: this.#frontier.copy(), bytes: this.#bytes };
  }

  /** Writes the pending hashes and bundle ends, without a sync. */
  async write(files: LogFiles): Promise<void> {
    const writes = this.#levels.map(async (hashes, level) => {
      const file = await files.writer(hashesName(level));
      await file.write([Buffer.concat(hashes)], hashesAt(level, this.#from) * HASH_BYTES);
    });
    if (this.#bundleEnds.length > 0) writes.push(this.#writeBundleEnds(files));
    const written = await Promise.allSettled(writes);
    const failed = written.find((each) => each.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    this.#from = this.size;
    this.#levels = [];
    this.#bundleEnds = [];
  }

  async #writeBundleEnds(files: LogFiles): Promise<void> {
    const bytes = Buffer.allocUnsafe(this.#bundleEnds.length * OFFSET_BYTES);
    for (const [index, end] of this.#bundleEnds.entries()) bytes.writeBigUInt64BE(BigInt(end), index * OFFSET_BYTES);
    const file = await files.writer('bundles');
    await file.write([bytes], Math.floor(this.#from / TILE_WIDTH) * OFFSET_BYTES);
  }
}
