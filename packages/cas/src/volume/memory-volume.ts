/**
 * A volume in memory, for amnesia: the contract of `Volume`, except that a restart loses everything.
 *
 * Bound: `bytes_max`, payloads and meta counted with a fixed overhead for each record. Overflow: `storage_full`.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { RonError, sched } from '@ron/kernel';
import { ID_BYTES } from '@ron/log';
import { chunkKey, idOfKey } from '../objects/leases.ts';
import { isContent, isObject, RecordType } from './record-types.ts';
import { shardIdsOf } from './stripe.ts';
import { newVolumeId } from './superblock.ts';
import type {
  Held,
  Kind,
  NewRecord,
  Reclaimed,
  ReclaimInit,
  StoredRecord,
  Volume,
  VolumeState,
  VolumeStats,
} from './volume.ts';

/** An estimate of the memory for the maps and objects of one record. */
const RECORD_OVERHEAD_BYTES = 256;
/** Contents that are visited in one turn of the event loop by `reclaim`. */
const RECLAIM_ENTRIES = 512;

interface Kept extends StoredRecord {
  readonly put_s: number;
}

export class MemoryVolume implements Volume {
  readonly id: string;
  readonly name: string;
  readonly domain: string;
  readonly isDoneWithPayloads = true;
  readonly #bytes_max: number;
  /** A small object is in two tables, as one record. */
  readonly #tables: Record<Kind, Map<string, Kept>> = {
    content: new Map(),
    object: new Map(),
    stripe: new Map(),
    shard: new Map(),
    note: new Map(),
  };
  readonly #pins = new Set<string>();
  #used_bytes = 0;

  constructor(init: { id?: string; name?: string; bytes_max: number }) {
    this.id = init.id ?? newVolumeId();
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
    const bytes = records.reduce((sum, record) => sum + this.#newBytes(record), 0);
    if (bytes > 0 && this.#used_bytes + bytes > this.#bytes_max) {
      return Promise.reject(new RonError('storage_full', 'the memory limit of amnesia is reached'));
    }
    for (const record of records) this.#apply(record);
    return Promise.resolve();
  }

  get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    if (signal.aborted) return Promise.reject(signal.reason);
    const record = this.#tables[kind].get(chunkKey(id));
    // Bits flip in memory too, if rarely.
    if (record !== undefined && isContent(record.type) && Buffer.compare(blake3(record.payload), id) !== 0) {
      return Promise.reject(new RonError('integrity', 'a record in memory is damaged'));
    }
    return Promise.resolve(record);
  }

  async *getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    for (const id of ids) {
      const record = await this.get('content', id, signal);
      if (record === undefined) throw new RonError('not_found', `${this.name} does not hold it`);
      yield [record.payload];
    }
  }

  sync(): Promise<void> {
    return Promise.resolve();
  }

  isDurable(kind: Kind, id: Uint8Array): boolean {
    return this.has(kind, id);
  }

  has(kind: Kind, id: Uint8Array): boolean {
    return this.#tables[kind].has(chunkKey(id));
  }

  isPinned(id: Uint8Array): boolean {
    return this.#pins.has(chunkKey(id));
  }

  /** Nothing survives the process, so no removed object can come back. */
  wasRemoved(): boolean {
    return false;
  }

  typeOf(kind: Kind, id: Uint8Array): number | undefined {
    return this.#tables[kind].get(chunkKey(id))?.type;
  }

  putTime_s(kind: Kind, id: Uint8Array): Promise<number | undefined> {
    return Promise.resolve(this.#tables[kind].get(chunkKey(id))?.put_s);
  }

  inventory(kind: Kind, after: Uint8Array | undefined, count: number): Promise<Held[]> {
    // In latin1, the order of texts is the order of bytes.
    const start = after === undefined ? '' : chunkKey(after);
    const keys = [...this.#tables[kind].keys()].filter((key) => after === undefined || key > start).toSorted();
    const held = keys.slice(0, count).map((key) => {
      const { type, payload, put_s } = this.#tables[kind].get(key) as Kept;
      return { id: idOfKey(key), type, payload_bytes: payload.length, put_s };
    });
    return Promise.resolve(held);
  }

  async listIds(kind: Kind, after: Uint8Array | undefined, into: Buffer): Promise<number> {
    const held = await this.inventory(kind, after, Math.floor(into.length / ID_BYTES));
    for (const [at, { id }] of held.entries()) into.set(id, at * ID_BYTES);
    return held.length;
  }

  held(kind: Kind, id: Uint8Array): Promise<Held | undefined> {
    const kept = this.#tables[kind].get(chunkKey(id));
    return Promise.resolve(kept && { id, type: kept.type, payload_bytes: kept.payload.length, put_s: kept.put_s });
  }

  async reclaim(init: ReclaimInit): Promise<Reclaimed> {
    const before_bytes = this.#used_bytes;
    let looked = 0;
    for (const [key, kept] of this.#tables.content) {
      if (this.#tables.object.get(key) !== kept && !init.isNeeded(idOfKey(key))) this.#drop('content', key);
      if (++looked % RECLAIM_ENTRIES !== 0) continue;
      await init.pace(RECLAIM_ENTRIES * RECORD_OVERHEAD_BYTES);
      init.signal.throwIfAborted();
    }
    return { segments: 0, moved_bytes: 0, freed_bytes: before_bytes - this.#used_bytes };
  }

  stats(): VolumeStats {
    return { used_bytes: this.#used_bytes, segments: 0, contents: this.#tables.content.size };
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

  /** The memory that a record adds. */
  #newBytes(record: NewRecord): number {
    if (record.type === RecordType.pin) return this.#pins.has(chunkKey(record.id)) ? 0 : RECORD_OVERHEAD_BYTES;
    return tablesOf(record.type).length > 0 ? costOf(record) : 0;
  }

  #apply(record: NewRecord): void {
    const key = chunkKey(record.id);
    if (tablesOf(record.type).length > 0) this.#keep(key, record);
    if (record.type === RecordType.remove) this.#drop('object', key);
    if (record.type === RecordType.unnote) this.#drop('note', key);
    if (record.type === RecordType.unstripe) this.#dropStripe(key, record);
    if (record.type === RecordType.pin && !this.#pins.has(key)) {
      this.#pins.add(key);
      this.#used_bytes += RECORD_OVERHEAD_BYTES;
    }
    if (record.type === RecordType.unpin && this.#pins.delete(key)) this.#used_bytes -= RECORD_OVERHEAD_BYTES;
  }

  #keep(key: string, record: NewRecord): void {
    // A copy: the caller may reuse its buffer.
    const kept = {
      type: record.type,
      payload: Uint8Array.from(record.payload),
      meta: Uint8Array.from(record.meta ?? []),
      put_s: Math.floor(sched.wall_ms() / 1000),
    };
    this.#used_bytes += costOf(kept);
    for (const table of tablesOf(record.type)) {
      this.#drop(table, key);
      this.#tables[table].set(key, kept);
    }
    if (record.type !== RecordType.stripe) return;
    for (const shard of shardIdsOf(kept.payload)) this.#tables.shard.set(chunkKey(shard), kept);
  }

  #dropStripe(key: string, record: NewRecord): void {
    const kept = this.#tables.stripe.get(key);
    this.#drop('stripe', key);
    for (const shard of shardIdsOf(record.payload)) {
      if (this.#tables.shard.get(chunkKey(shard)) === kept) this.#tables.shard.delete(chunkKey(shard));
    }
  }

  /** Removes a record from one table; its memory is freed unless the other table holds it. */
  #drop(kind: Kind, key: string): void {
    const kept = this.#tables[kind].get(key);
    if (kept === undefined) return;
    this.#tables[kind].delete(key);
    const other = kind === 'content' ? this.#tables.object : this.#tables.content;
    if (other.get(key) !== kept) this.#used_bytes -= costOf(kept);
  }
}

/** The table that finds a record by its own id. */
function tablesOf(type: number): readonly Kind[] {
  if (type === RecordType.stripe) return ['stripe'];
  if (type === RecordType.note) return ['note'];
  if (!isContent(type)) return isObject(type) ? ['object'] : [];
  return isObject(type) ? ['content', 'object'] : ['content'];
}

const costOf = (record: Pick<NewRecord, 'payload' | 'meta'>): number =>
  record.payload.length + (record.meta?.length ?? 0) + RECORD_OVERHEAD_BYTES;
