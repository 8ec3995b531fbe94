/**
 * The places of records in memory, for a directory that cannot be written: the log is read at every start.
 *
 * Bound: one entry for each record. Cancellation: none; no call waits.
 */
import { ID_BYTES } from '@ron/log';
import type { Applied, Changes, Place, PlaceStore } from './place-index.ts';

export class MemoryStore implements PlaceStore {
  readonly #places: Map<string, Place>;
  /** Sorted once for all pages of a walk; anew when something has been stored. */
  #sorted: readonly string[] | undefined;
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
    const keys = (this.#sorted ??= [...this.#places.keys()].toSorted());
    for (let at = firstFrom(keys, low); at < keys.length && keys[at]! < high; at++) {
      const key = keys[at]!;
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
    this.#sorted = undefined;
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

/** Where the first key lies that is not before `low`. */
function firstFrom(keys: readonly string[], low: string): number {
  let [from, to] = [0, keys.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (keys[middle]! < low) from = middle + 1;
    else to = middle;
  }
  return from;
}
