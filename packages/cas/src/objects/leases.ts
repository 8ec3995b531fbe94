/**
 * Who needs a content that no manifest names yet: writers and uploads that are under way.
 *
 * Promise: a content that was leased at any time since a sweep began is not reclaimed by that sweep. So a writer that finds
 * its chunk already stored may rely on it: either the sweep sees the lease, or the manifest that the writer stored
 * before it let go. A lease on a page is one on every chunk that the page names: a writer of terabytes holds one for
 * each full page and one for each chunk of the page that it is at.
 * Bound: one entry for each lease; while a sweep runs eight bytes more for each that was released since it began, at most
 * `released_max`: beyond that the sweep reclaims nothing more. Cancellation: none; no call waits.
 */
import { assert, RonError, touch } from '@ron/kernel';
import { IdSet } from '../compaction/id-set.ts';

const RELEASED_MAX = 16 * 1024 * 1024;

/** The key of a content in maps: its id as a string of 32 characters. */
export type ChunkKey = string;

export const chunkKey = (id: Uint8Array): ChunkKey =>
  Buffer.from(id.buffer, id.byteOffset, id.length).toString('latin1');

export const idOfKey = (key: ChunkKey): Buffer => Buffer.from(key, 'latin1');

export class Leases {
  readonly #released_max: number;
  readonly #held = new Map<ChunkKey, number>();
  readonly #pages = new Map<ChunkKey, number>();
  readonly #watched = new Map<ChunkKey, { wasTaken: boolean }>();
  /** Set while a sweep runs: what was leased when it began, or later, and is no longer. */
  #released: IdSet | undefined;

  constructor(init: { released_max?: number } = {}) {
    this.#released_max = init.released_max ?? RELEASED_MAX;
  }

  get size(): number {
    return this.#held.size + this.#pages.size;
  }

  /** Watches a content until the result is disposed: whether it was leased since. */
  watch(key: ChunkKey): Disposable & { readonly wasTaken: boolean } {
    touch(this);
    // A second one of the same key learns nothing, and says so.
    if (this.#watched.has(key)) return { wasTaken: true, [Symbol.dispose]: () => undefined };
    const watch = { wasTaken: this.isHeld(key), [Symbol.dispose]: () => void this.#watched.delete(key) };
    this.#watched.set(key, watch);
    return watch;
  }

  take(key: ChunkKey): void {
    touch(this);
    const watch = this.#watched.get(key);
    if (watch !== undefined) watch.wasTaken = true;
    increment(this.#held, key);
  }

  release(key: ChunkKey): void {
    touch(this);
    decrement(this.#held, key);
    this.#released?.add(idOfKey(key));
  }

  /** Leases a page that is stored, and with it the chunks that it names; theirs may be released after this. */
  takePage(key: ChunkKey): void {
    touch(this);
    increment(this.#pages, key);
  }

  releasePage(key: ChunkKey): void {
    touch(this);
    decrement(this.#pages, key);
    this.#released?.add(idOfKey(key));
  }

  isHeld(key: ChunkKey): boolean {
    touch(this);
    return this.#held.has(key) || this.#pages.has(key);
  }

  /**
   * From now on every lease is remembered, even if it is released. To be called before the sweep looks at any manifest.
   * Returns the ids of the pages that are leased: what they name is needed, whatever happens to their leases.
   */
  beginSweep(): readonly Uint8Array[] {
    touch(this);
    if (this.#released !== undefined) throw new RonError('conflict', 'a sweep is under way');
    this.#released = new IdSet({ ids_max: this.#released_max });
    return [...this.#pages.keys()].map(idOfKey);
  }

  /** Whether a content that no manifest named may go. To be asked in the step that forgets it. */
  isFree(id: Uint8Array): boolean {
    touch(this);
    assert(this.#released !== undefined, 'a sweep is under way');
    return !this.isHeld(chunkKey(id)) && !this.#released.has(id);
  }

  endSweep(): void {
    touch(this);
    this.#released = undefined;
  }
}

function increment(counts: Map<ChunkKey, number>, key: ChunkKey): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

function decrement(counts: Map<ChunkKey, number>, key: ChunkKey): void {
  const count = counts.get(key);
  assert(count !== undefined, 'a lease is released once');
  if (count > 1) counts.set(key, count - 1);
  else counts.delete(key);
}
