/**
 * The places of records in memory, for a directory that cannot be written: the log is read at every start.
 *
 * Bound: one entry for each record. Cancellation: none; no call waits.
 */
import { ID_BYTES } from '@ron/log';
import type { Applied, Changes, Place, PlaceStore } from './place-index.ts';

export class MemoryStore implements PlaceStore {
  readonly #places: Map<string, Place>;
  #applied: Applied | undefined;

  /** Begins with what another one held: tests bring back what a crash would have left. */
  constructor(from?: MemoryStore) {
    this.#places = new Map(from === undefined ? [] : from.#places);
    this.#applied = from?.applied;
  }

  get applied(): Applied | undefined {
    return this.#applied;
  }

  get(key: string): Place | undefined {
    return this.#places.get(key);
  }

  *range(low: string, high: string): Generator<[key: Buffer, place: Place], void, void> {
    const keys = [...this.#places.keys()].filter((key) => key >= low && key < high).toSorted();
    for (const key of keys) {
      const place = this.#places.get(key);
      if (place !== undefined) yield [Buffer.from(key, 'latin1'), place];
    }
  }

  copyIds(low: string, high: string, into: Buffer): number {
    let count = 0;
    for (const [key] of this.range(low, high)) {
      if ((count + 1) * ID_BYTES > into.length) break;
      key.copy(into, count * ID_BYTES, 1);
      count += 1;
    }
    return count;
  }

  store(changes: Changes, applied: Applied): Promise<void> {
    for (const [key, place] of changes) {
      if (place === undefined) this.#places.delete(key);
      else this.#places.set(key, place);
    }
    this.#applied = applied;
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
