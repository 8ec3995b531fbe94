/** A registry on a store in memory, for tests. */
import { MemoryStore, type Draft, type StoreImage } from '@ron/custody/store';
import { KeyIndex } from './key-index.ts';
import { writeKey } from './key-registry.ts';
import type { KeyRecord } from './key-record.ts';

export const STORE_BYTES = 64 * 1024 * 1024;

export function storeWith(...records: readonly KeyRecord[]): MemoryStore {
  return new MemoryStore(STORE_BYTES, imageWith(records));
}

/** The image of a store that has these keys. */
export function imageWith(records: readonly KeyRecord[]): StoreImage {
  const image = new Map<string, Map<string, Uint8Array>>();
  const tableOf = (table: string): Map<string, Uint8Array> => {
    const found = image.get(table) ?? new Map<string, Uint8Array>();
    image.set(table, found);
    return found;
  };
  const draft: Draft = {
    get: (table, key) => tableOf(table).get(key),
    has: (table, key) => tableOf(table).has(key),
    count: (table) => tableOf(table).size,
    put: (table, key, value) => void tableOf(table).set(key, value),
    remove: (table, key) => void tableOf(table).delete(key),
    decoded: () => undefined,
    onCommitted: () => undefined,
  };
  for (const record of records) writeKey(draft, undefined, record);
  return image;
}

/** A view of these keys. */
export function indexOf(...records: readonly KeyRecord[]): KeyIndex {
  const find = (name: string): KeyRecord | undefined => records.find((record) => record.name === name);
  return new KeyIndex({ size: records.length, read: find, cached: find });
}
