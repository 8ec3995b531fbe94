/**
 * Who needs a chunk that no manifest names yet: writers and uploads that are under way.
 *
 * Promise: a chunk that was leased at any time since a sweep began is not reclaimed by that sweep. So a writer that finds
 * its chunk already stored may rely on it: either the sweep sees the lease, or the manifest that the writer stored
 * before it let go.
 * Bound: one entry for each leased chunk; while a sweep runs also those leased since it began, at most `TOUCHED_MAX`:
 * beyond that the sweep gives up and is tried again later. Cancellation: none.
 */
import { touch } from '@ron/kernel';

const TOUCHED_MAX = 4 * 1024 * 1024;

export type ChunkKey = string;

/** The key of a chunk in maps: its id as a string of 32 characters. */
export const chunkKey = (id: Uint8Array): ChunkKey =>
  Buffer.from(id.buffer, id.byteOffset, id.length).toString('latin1');

export class Leases {
  readonly #held = new Map<ChunkKey, number>();
  #touched: Set<ChunkKey> | undefined;
  #overflowed = false;

  get size(): number {
    return this.#held.size;
  }

  take(key: ChunkKey): void {
    touch(this);
    this.#held.set(key, (this.#held.get(key) ?? 0) + 1);
    if (this.#touched === undefined) return;
    if (this.#touched.size >= TOUCHED_MAX) this.#overflowed = true;
    else this.#touched.add(key);
  }

  release(key: ChunkKey): void {
    touch(this);
    const count = this.#held.get(key) ?? 0;
    if (count > 1) this.#held.set(key, count - 1);
    else this.#held.delete(key);
  }

  /** From now on every lease is remembered, also when it is released. Before the sweep looks at any manifest. */
  beginSweep(): void {
    touch(this);
    this.#touched = new Set();
    this.#overflowed = false;
  }

  /** Whether a chunk that no manifest named may go. To be asked in the step that forgets it. */
  isFree(key: ChunkKey): boolean {
    touch(this);
    return !this.#overflowed && !this.#held.has(key) && this.#touched?.has(key) !== true;
  }

  endSweep(): void {
    touch(this);
    this.#touched = undefined;
  }
}
