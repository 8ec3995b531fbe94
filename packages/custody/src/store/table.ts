/** Typed views of a record store: JSON records of one table, and single documents. */
import type { Draft, Reader, RecordStore } from './record-store.ts';

/** One table with JSON records. */
export class Table<T> {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }

  get(reader: Reader, key: string): T | undefined {
    const bytes = reader.get(this.name, key);
    return bytes === undefined ? undefined : (parsed(bytes) as T);
  }

  put(draft: Draft, key: string, value: T): void {
    draft.put(this.name, key, Buffer.from(JSON.stringify(value)));
  }

  has(reader: Reader, key: string): boolean {
    return reader.has(this.name, key);
  }

  remove(draft: Draft, key: string): void {
    draft.remove(this.name, key);
  }

  count(reader: Reader): number {
    return reader.count(this.name);
  }

  range(store: RecordStore, start: string, end: string, limit: number): { readonly key: string; readonly value: T }[] {
    return store.range(this.name, { start, end, limit }).map(({ key, value }) => ({ key, value: parsed(value) as T }));
  }
}

/** A document that is replaced as a whole. */
export interface Document<T> {
  readonly value: T | undefined;
  replace(next: T, signal: AbortSignal): Promise<void>;
}

/** One record as a document. It is read once and then kept in memory. */
export function documentOf<T>(store: RecordStore, table: Table<T>, key: string): Document<T> {
  let value = table.get(store, key);
  return {
    get value() {
      return value;
    },
    async replace(next, signal) {
      await store.commit((draft) => table.put(draft, key, next), signal);
      value = next;
    },
  };
}

function parsed(bytes: Uint8Array): unknown {
  return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString());
}
