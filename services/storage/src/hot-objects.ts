/**
 * Small objects with their answers prepared, by the request target that asks for them.
 *
 * Bound: `bytes_max`. Overflow: the least used go. An object is immutable, so nothing here can be stale; one that was
 * removed is dropped by `forget`.
 */
import { RamCache, type StoredObject } from '@ron/cas';
import type { FastEntry } from '@ron/ingress';
import { fastEntry } from './objects.ts';

/** What an entry costs besides its bytes: prepared headers and the maps around it. */
const ENTRY_OVERHEAD_BYTES = 2048;

export class HotObjects {
  readonly #entries: RamCache<FastEntry>;

  constructor(bytes_max: number) {
    this.#entries = new RamCache(bytes_max);
  }

  lookup(target: string): FastEntry | undefined {
    return this.#entries.get(target);
  }

  remember(target: string, object: StoredObject): void {
    if (object.whole === undefined || this.#entries.has(target)) return;
    const entry = fastEntry(object);
    // Twice the body: small ones are kept as text as well.
    if (entry !== undefined) this.#entries.put(target, entry, 2 * object.size + ENTRY_OVERHEAD_BYTES);
  }

  forget(target: string): void {
    this.#entries.delete(target);
  }

  get hits_total(): number {
    return this.#entries.hits_total;
  }
}
