/**
 * Leases on contents that no manifest references yet: held by writers and uploads in progress.
 *
 * Contract: a content that was leased at any time since a sweep began is not reclaimed by that sweep. So a writer that finds
 * its chunk already stored can rely on it: the sweep sees either the lease or the manifest that the writer stored before it
 * released the lease. A lease on a page covers every chunk of the page, so a writer of terabytes holds one lease for each
 * full page and one for each chunk of the current page.
 * Bound: one entry for each lease; during a sweep eight bytes more for each lease that was released since it began, at most
 * `released_max`. Overflow: the sweep reclaims nothing more.
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
  /** Set during a sweep: the contents whose leases were released since it began. */
  #released: IdSet | undefined;

  constructor(init: { released_max?: number } = {}) {
    this.#released_max = init.released_max ?? RELEASED_MAX;
  }

  get size(): number {
    return this.#held.size + this.#pages.size;
  }

  /** Watches until the result is disposed whether a content is leased. */
  watch(key: ChunkKey): Disposable & { readonly wasTaken: boolean } {
    touch(this);
    // A second watch of a key cannot observe leases, so it reports one.
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

  /** Leases a stored page and with it its chunks, whose own leases may be released after this. */
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
   * Begins a sweep: from now on every lease is remembered, even if it is released. Call it before the sweep reads any
   * manifest. Returns the ids of the leased pages: their chunks are needed even if the leases are released.
   */
  beginSweep(): readonly Uint8Array[] {
    touch(this);
    if (this.#released !== undefined) throw new RonError('conflict', 'a sweep is in progress');
    this.#released = new IdSet({ ids_max: this.#released_max });
    return [...this.#pages.keys()].map(idOfKey);
  }

  /** Whether a content that no manifest references may be reclaimed. Call it in the same synchronous step that removes it. */
  isFree(id: Uint8Array): boolean {
    touch(this);
    assert(this.#released !== undefined, 'a sweep is in progress');
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
