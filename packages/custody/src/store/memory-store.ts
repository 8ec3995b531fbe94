/**
 * Records in memory, for amnesia mode and for tests.
 *
 * Contract: as `RecordStore`, until the process ends. Bound: `bytes_max` in all keys and values. Overflow: `storage_full`.
 */
import { RonError, touch } from '@ron/kernel';
import { BatchedStore, type Change, type RangeInit, type RangeRecord } from './record-store.ts';

/** Keys and values of all tables, for a copy of a store. */
export type StoreImage = ReadonlyMap<string, ReadonlyMap<string, Uint8Array>>;

interface MemoryTable {
  readonly records: Map<string, Uint8Array>;
  /** Sorted. */
  readonly keys: string[];
}

export class MemoryStore extends BatchedStore {
  readonly #bytes_max: number;
  readonly #tables = new Map<string, MemoryTable>();
  #bytes = 0;

  constructor(bytes_max: number, image: StoreImage = new Map()) {
    super();
    this.#bytes_max = bytes_max;
    for (const [table, records] of image) {
      for (const [key, value] of records) this.#apply({ table, key, value });
    }
  }

  get(table: string, key: string): Uint8Array | undefined {
    touch(this);
    return this.#tables.get(table)?.records.get(key)?.slice();
  }

  has(table: string, key: string): boolean {
    return this.#tables.get(table)?.records.has(key) === true;
  }

  count(table: string): number {
    return this.#tables.get(table)?.records.size ?? 0;
  }

  range(table: string, { start, end, limit }: RangeInit): RangeRecord[] {
    const found = this.#tables.get(table);
    if (found === undefined) return [];
    const keys: string[] = [];
    for (let at = placeOf(found.keys, start); keys.length < limit && at < found.keys.length; at++) {
      const key = found.keys[at]!;
      if (key >= end) break;
      keys.push(key);
    }
    return keys.map((key) => ({ key, value: found.records.get(key)!.slice() }));
  }

  async prefetch(): Promise<void> {}

  /** A copy of everything. */
  image(): StoreImage {
    return new Map([...this.#tables].map(([table, { records }]) => [table, new Map(records)]));
  }

  protected async write(changes: readonly Change[]): Promise<void> {
    const more = changes.reduce((sum, change) => sum + this.#growth(change), 0);
    if (more > 0 && this.#bytes + more > this.#bytes_max) {
      throw new RonError('storage_full', `the limit of ${this.#bytes_max} bytes in memory is reached`);
    }
    touch(this);
    for (const change of changes) this.#apply(change);
  }

  #growth({ table, key, value }: Change): number {
    const before = this.#tables.get(table)?.records.get(key);
    const bytes = (content: Uint8Array | undefined): number =>
      content === undefined ? 0 : key.length + content.length;
    return bytes(value) - bytes(before);
  }

  #apply(change: Change): void {
    const { table, key, value } = change;
    this.#bytes += this.#growth(change);
    let found = this.#tables.get(table);
    if (found === undefined) this.#tables.set(table, (found = { records: new Map(), keys: [] }));
    const { records, keys } = found;
    const place = placeOf(keys, key);
    if (value === undefined) {
      if (records.delete(key)) keys.splice(place, 1);
      return;
    }
    if (!records.has(key)) keys.splice(place, 0, key);
    records.set(key, value.slice());
  }
}

/** The place of the first key that is not before this one. */
function placeOf(keys: readonly string[], key: string): number {
  let [low, high] = [0, keys.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (keys[middle]! < key) low = middle + 1;
    else high = middle;
  }
  return low;
}
