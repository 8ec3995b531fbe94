/**
 * A volume in memory, for amnesia: the same promises, but for what a restart takes.
 *
 * Bound: `bytes_max`, payloads and meta counted with a fixed overhead for each record. Overflow: `storage_full`.
 * Cancellation: every call is over when it returns.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { RonError } from '@ron/kernel';
import { isContent, isObject, RecordType } from './record-types.ts';
import type { Kind, NewRecord, StoredRecord, Volume, VolumeState, VolumeStats } from './volume.ts';

/** Roughly what the maps and objects of one record cost. */
const RECORD_OVERHEAD_BYTES = 256;

const keyOf = (id: Uint8Array): string => Buffer.from(id.buffer, id.byteOffset, id.length).toString('latin1');

export class MemoryVolume implements Volume {
  readonly name: string;
  readonly domain: string;
  readonly #bytes_max: number;
  readonly #tables: Record<Kind, Map<string, StoredRecord>> = { content: new Map(), object: new Map() };
  readonly #pins = new Set<string>();
  #used_bytes = 0;

  constructor(init: { name?: string; bytes_max: number }) {
    this.name = init.name ?? 'memory';
    this.domain = this.name;
    this.#bytes_max = init.bytes_max;
  }

  get state(): VolumeState {
    if (this.#used_bytes < this.#bytes_max) return { condition: 'ok', reason: '' };
    return { condition: 'full', reason: `${this.name}: ${this.#bytes_max} bytes of memory are in use` };
  }

  put(records: readonly NewRecord[], signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason);
    const fresh = records.filter((record) => !this.#holds(record));
    const bytes = fresh.reduce((sum, record) => sum + costOf(record), 0);
    if (this.#used_bytes + bytes > this.#bytes_max) {
      return Promise.reject(new RonError('storage_full', 'the memory that amnesia may use is full'));
    }
    for (const record of fresh) this.#keep(record);
    this.#used_bytes += bytes;
    return Promise.resolve();
  }

  get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    if (signal.aborted) return Promise.reject(signal.reason);
    const record = this.#tables[kind].get(keyOf(id));
    // Memory rots as well, if rarely: the promise is the same.
    if (record !== undefined && isContent(record.type) && Buffer.compare(blake3(record.payload), id) !== 0) {
      return Promise.reject(new RonError('integrity', 'a record in memory is damaged'));
    }
    return Promise.resolve(record);
  }

  async *getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<Uint8Array, void, void> {
    for (const id of ids) {
      const record = await this.get('content', id, signal);
      if (record === undefined) throw new RonError('not_found', `${this.name} does not hold it`);
      yield record.payload;
    }
  }

  sync(): Promise<void> {
    return Promise.resolve();
  }

  isDurable(kind: Kind, id: Uint8Array): boolean {
    return this.has(kind, id);
  }

  has(kind: Kind, id: Uint8Array): boolean {
    return this.#tables[kind].has(keyOf(id));
  }

  isPinned(id: Uint8Array): boolean {
    return this.#pins.has(keyOf(id));
  }

  inventory(kind: Kind, after: Uint8Array | undefined, count: number): Promise<Uint8Array[]> {
    const ids = [...this.#tables[kind].keys()].map((key) => Uint8Array.from(Buffer.from(key, 'latin1')));
    const sorted = ids.toSorted((a, b) => Buffer.compare(a, b));
    const rest = after === undefined ? sorted : sorted.filter((id) => Buffer.compare(id, after) > 0);
    return Promise.resolve(rest.slice(0, count));
  }

  stats(): VolumeStats {
    return { used_bytes: this.#used_bytes, segments: 0 };
  }

  close(): Promise<void> {
    for (const table of Object.values(this.#tables)) table.clear();
    this.#pins.clear();
    this.#used_bytes = 0;
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #holds(record: NewRecord): boolean {
    const key = keyOf(record.id);
    if (record.type === RecordType.object) return this.#tables.object.has(key) && this.#tables.content.has(key);
    if (record.type === RecordType.manifest) return this.#tables.object.has(key);
    return isContent(record.type) && this.#tables.content.has(key);
  }

  #keep(record: NewRecord): void {
    const key = keyOf(record.id);
    const meta = record.meta ?? new Uint8Array(0);
    // A copy: the caller's buffer is the caller's to use again.
    const kept = { type: record.type, payload: Uint8Array.from(record.payload), meta: Uint8Array.from(meta) };
    if (isContent(record.type)) this.#tables.content.set(key, kept);
    if (isObject(record.type)) this.#tables.object.set(key, kept);
    if (record.type === RecordType.remove) this.#tables.object.delete(key);
    if (record.type === RecordType.pin) this.#pins.add(key);
    if (record.type === RecordType.unpin) this.#pins.delete(key);
  }
}

const costOf = (record: NewRecord): number =>
  record.payload.length + (record.meta?.length ?? 0) + RECORD_OVERHEAD_BYTES;
