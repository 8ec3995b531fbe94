/**
 * Objects by their address, on a volume.
 *
 * Contract: an object is readable from the end of `writer().finish` until it is removed, and every byte that `open` gives is
 * verified. Verified contents are cached; concurrent reads of one content are coalesced.
 * Bound: `cache_bytes` for each cache, `READS_MAX` reads. Overflow: the least used entries are evicted; reads are refused
 * with `busy`. Cancellation: by the signals; a coalesced read ends when its last caller has left.
 */
import { Cache } from '@ron/cache';
import { BufferPool, RonError, sched, SingleFlight, type RonErrorInit } from '@ron/kernel';
import { addressBytes, formatAddress, type Address } from '@ron/proto';
import { notComplete } from '../compaction/completeness.ts';
import { chunkKey, Leases } from './leases.ts';
import { EntryTree, ENTRY_BYTES, ManifestError } from './entry-tree.ts';
import { manifestSize, readManifest } from './manifest.ts';
import { ObjectWriter, type WriterState } from './object-writer.ts';
import { putSmall, type FinishInit, type ObjectPlace, type Written } from './put-object.ts';
import { RecordType } from '../volume/record-types.ts';
import { StoredObject, type Contents, type PageRef } from './stored-object.ts';
import type { StoredRecord, Volume } from '../volume/volume.ts';

export interface ObjectStoreInit {
  volume: Volume;
  /** A power of two, at least 64 KiB. Default 64 KiB. */
  chunk_bytes?: number;
  /** Chunks of an object that go to disk together. Default 512 KiB. */
  batch_bytes?: number;
  /** Memory for verified contents. Default 64 MiB. */
  cache_bytes?: number;
  /** The largest object. Default 5 TiB. */
  object_bytes_max?: number;
  /** How long an object that is not pinned is kept after its last put. Default: without limit. */
  lease_ms?: number | undefined;
  /** Called for each object whose record was written: new, renewed or retyped. Must not throw. */
  onStored?: (address: Address) => void;
  /** Called for each removed object so that outer caches can evict it. */
  onRemoved?: (address: Address) => void;
  /** Called for each object whose media type changed so that outer caches can evict it. */
  onRetyped?: (address: Address) => void;
}

/** The description of an object without its bytes. */
export interface ObjectDescription {
  readonly address: Address;
  readonly size: number;
  readonly media_type: string;
}

/** An object that is one record. */
export interface SmallObject {
  readonly media_type: string;
  readonly whole: Uint8Array;
}

const KIB = 1024;
/** Pages of manifests have a cache of at least this size: three full pages. */
const PAGES_BYTES_MIN = 1024 * KIB;
/** Chunk buffers that are pooled for later writes: enough for a few writers. */
const CHUNKS_KEPT_BYTES = 4 * KIB * KIB;
/** An open object without its bytes: its address, hash, type and layout. */
const OBJECT_OVERHEAD_BYTES = 1024;
/** Distinct contents, and pages, that are read concurrently. Further reads are refused with `busy`. */
const READS_MAX = 16_384;
const EMPTY = new Uint8Array(0);
const utf8 = new TextDecoder();

export class ObjectStore {
  readonly volume: Volume;
  readonly leases = new Leases();
  readonly cache: Cache<Uint8Array>;
  readonly chunk_bytes: number;
  readonly object_bytes_max: number;
  readonly lease_ms: number | undefined;
  readonly #batch_bytes: number | undefined;
  readonly #onStored: ((id: Uint8Array) => void) | undefined;
  readonly #onRemoved: ((address: Address) => void) | undefined;
  readonly #onRetyped: ((address: Address) => void) | undefined;
  /** Reads of object records in progress. A read is repeated if the media type changes meanwhile. */
  readonly #opening = new Map<Address, Set<{ isOutdated: boolean }>>();
  readonly #objects: Cache<StoredObject>;
  readonly #pages: Cache<EntryTree>;
  readonly #reads = new SingleFlight<Uint8Array>('content.read', { runs_max: READS_MAX });
  readonly #pageReads = new SingleFlight<EntryTree>('page.read', { runs_max: READS_MAX });
  readonly #contents: Contents;
  readonly #chunks: BufferPool;

  constructor(init: ObjectStoreInit) {
    this.volume = init.volume;
    this.chunk_bytes = init.chunk_bytes ?? 64 * KIB;
    this.object_bytes_max = init.object_bytes_max ?? 5 * KIB ** 4;
    this.lease_ms = init.lease_ms;
    this.#batch_bytes = init.batch_bytes;
    this.#chunks = chunkPool(this.chunk_bytes);
    const { onStored } = init;
    this.#onStored = onStored && ((id) => onStored(formatAddress(id)));
    this.#onRemoved = init.onRemoved;
    this.#onRetyped = init.onRetyped;
    const cache_bytes = init.cache_bytes ?? 64 * KIB * KIB;
    this.cache = new Cache({ bytes_max: cache_bytes });
    this.#objects = new Cache({ bytes_max: cache_bytes / 8 });
    const pages_bytes = cache_bytes === 0 ? 0 : Math.max(cache_bytes / 8, PAGES_BYTES_MIN);
    this.#pages = new Cache({ bytes_max: pages_bytes, entry_bytes_max: pages_bytes / 2 });
    this.#contents = {
      get: (id, signal) => this.#content(id, signal),
      getMany: (ids, signal) => this.#contentsOf(ids, signal),
      cached: (ids) => this.#cached(ids),
      page: (page, signal) => this.#page(page, signal),
      cachedPage: (page) => this.#pages.get(pageKey(page)),
    };
  }

  /** Memory that the caches of objects and manifest pages account for. */
  get manifest_bytes(): number {
    return this.#objects.bytes + this.#pages.bytes;
  }

  /** A writer for one object, or for the rest of one. */
  writer(from?: WriterState): ObjectWriter {
    const { object_bytes_max: bytes_max } = this;
    const chunk_bytes = from?.chunk_bytes ?? this.chunk_bytes;
    // An upload that was begun with another chunk size keeps it.
    const chunks = chunk_bytes === this.chunk_bytes ? this.#chunks : chunkPool(chunk_bytes);
    return new ObjectWriter({ ...this.#place, chunk_bytes, chunks, bytes_max, batch_bytes: this.#batch_bytes, from });
  }

  /** Stores an object that is complete in memory. */
  async put(bytes: Uint8Array, init: FinishInit, signal: AbortSignal): Promise<Written> {
    if (bytes.length <= this.chunk_bytes) return await putSmall(this.#place, bytes, init, signal);
    const writer = this.writer();
    try {
      await writer.write(bytes, signal);
      return await writer.finish(init, signal);
    } finally {
      writer.abort();
    }
  }

  get #place(): ObjectPlace {
    const { volume, leases } = this;
    return { volume, leases, isStale: this.#isStale, onStored: this.#onStored, onRetyped: this.#retyped };
  }

  has(address: Address): boolean {
    return this.volume.has('object', addressBytes(address));
  }

  /**
   * The object, or undefined when it is certainly not stored. Throws `not_ready` when an absent volume may have it.
   * `onOpened` is called in the same synchronous step in which the object is known to be current, so that an outer cache
   * cannot keep an object that was removed or retyped meanwhile.
   */
  async open(
    address: Address,
    signal: AbortSignal,
    onOpened?: (object: StoredObject) => void,
  ): Promise<StoredObject | undefined> {
    const known = this.#objects.get(address);
    if (known !== undefined) {
      onOpened?.(known);
      return known;
    }
    const hash = addressBytes(address);
    const reading = { isOutdated: false };
    this.#watch(address, reading);
    try {
      for (;;) {
        reading.isOutdated = false;
        const record = await this.volume.get('object', hash, signal);
        if (record === undefined) {
          this.#requireCertainAbsence(address);
          return undefined;
        }
        const { object, bytes } = await this.#objectOf(address, hash, record, signal);
        if (reading.isOutdated) continue;
        // It may have been removed while it was read.
        if (this.has(address)) {
          this.#objects.set(address, object, bytes);
          onOpened?.(object);
        }
        return object;
      }
    } finally {
      this.#unwatch(address, reading);
    }
  }

  #watch(address: Address, reading: { isOutdated: boolean }): void {
    const readings = this.#opening.get(address);
    if (readings === undefined) this.#opening.set(address, new Set([reading]));
    else readings.add(reading);
  }

  #unwatch(address: Address, reading: { isOutdated: boolean }): void {
    const readings = this.#opening.get(address);
    if (readings?.delete(reading) === true && readings.size === 0) this.#opening.delete(address);
  }

  readonly #retyped = (hash: Uint8Array): void => {
    const address = formatAddress(hash);
    this.#objects.delete(address);
    for (const reading of this.#opening.get(address) ?? []) reading.isOutdated = true;
    this.#onRetyped?.(address);
  };

  /** The size and media type of an object; undefined when it is not found. Caches nothing: for walks over all objects. */
  async describe(address: Address, signal: AbortSignal): Promise<ObjectDescription | undefined> {
    const known = this.#objects.get(address);
    if (known !== undefined) return { address, size: known.size, media_type: known.media_type };
    const record = await this.volume.get('object', addressBytes(address), signal);
    if (record === undefined) return undefined;
    const size = record.type === RecordType.object ? record.payload.length : sizeOf(record);
    return { address, size, media_type: mediaTypeOf(record) };
  }

  /**
   * A small object, verified, if it can be read without waiting for a disk; undefined does not mean absent. `whole` is valid
   * until the next call. Nothing is cached, so an object that is read once costs no memory.
   */
  peekNow(address: Address): SmallObject | undefined {
    const known = this.#objects.get(address);
    if (known !== undefined) return known.whole && { media_type: known.media_type, whole: known.whole };
    const record = this.volume.getNow?.('object', addressBytes(address));
    // A manifest needs further reads.
    if (record?.type !== RecordType.object) return undefined;
    return { media_type: mediaTypeOf(record), whole: record.payload };
  }

  isPinned(address: Address): boolean {
    return this.volume.isPinned(addressBytes(address));
  }

  async pin(address: Address, signal: AbortSignal): Promise<void> {
    await this.#mark(address, RecordType.pin, signal);
  }

  async unpin(address: Address, signal: AbortSignal): Promise<void> {
    await this.#mark(address, RecordType.unpin, signal);
  }

  /** Removes an object. Compaction reclaims its contents unless another object references them. */
  async remove(address: Address, signal: AbortSignal): Promise<void> {
    this.#requireHere(address);
    await this.volume.put([{ type: RecordType.remove, id: addressBytes(address), payload: EMPTY }], signal);
    this.#objects.delete(address);
    this.#onRemoved?.(address);
  }

  /** Evicts an object or content from the caches after it was removed from the volume or found damaged there. */
  forget(hash: Uint8Array): void {
    this.#objects.delete(formatAddress(hash));
    this.cache.delete(chunkKey(hash));
  }

  /** Removes an object that was last put before `before_s`, unless it is pinned or is about to be put or pinned. */
  async expire(hash: Uint8Array, before_s: number, signal: AbortSignal): Promise<boolean> {
    using watch = this.leases.watch(chunkKey(hash));
    const put_s = (await this.volume.putTime_s('object', hash)) ?? before_s;
    // A put or pin that began since the look-up may have changed the time.
    if (put_s >= before_s || this.volume.isPinned(hash) || watch.wasTaken) return false;
    // In the same synchronous step as the check: a later put or pin is ordered after this.
    await this.remove(formatAddress(hash), signal);
    return true;
  }

  /** Whether an object that is put again must be rewritten to renew its lease. */
  readonly #isStale = (put_s: number): boolean =>
    this.lease_ms !== undefined && sched.wall_ms() - put_s * 1000 > this.lease_ms / 2;

  /** The lease keeps the object from expiring while the mark is written. */
  async #mark(address: Address, type: number, signal: AbortSignal): Promise<void> {
    const id = addressBytes(address);
    const key = chunkKey(id);
    this.leases.take(key);
    try {
      this.#requireHere(address);
      await this.volume.put([{ type, id, payload: EMPTY }], signal);
      this.#requireHere(address);
    } finally {
      this.leases.release(key);
    }
  }

  #requireHere(address: Address): void {
    if (this.has(address)) return;
    this.#requireCertainAbsence(address);
    throw new RonError('not_found', `${address} is not stored here`);
  }

  #requireCertainAbsence(address: Address): void {
    const { absenceDoubt, isDegradedAccepted } = this.volume;
    if (absenceDoubt === undefined || isDegradedAccepted === true) return;
    throw notComplete(`${address} was not found, but it may be on an absent volume: ${absenceDoubt}`);
  }

  /** A missing part is lost only if no absent volume can have it. */
  #missingPart(more: RonErrorInit): RonError {
    const { away } = this.volume;
    if (away !== undefined) return notComplete(`a part of the object cannot be read: ${away}`);
    return new RonError('integrity', 'a part of the object is missing', more);
  }

  async #objectOf(
    address: Address,
    hash: Uint8Array,
    record: StoredRecord,
    signal: AbortSignal,
  ): Promise<{ object: StoredObject; bytes: number }> {
    const media_type = mediaTypeOf(record);
    if (record.type === RecordType.object) {
      const whole = record.payload;
      const layout = { size: whole.length, chunk_bytes: this.chunk_bytes, whole, manifest: undefined };
      const object = new StoredObject(address, hash, media_type, layout, this.#contents);
      return { object, bytes: OBJECT_OVERHEAD_BYTES + whole.length };
    }
    const manifest = await readManifest(record.payload, hash, signal).catch(rethrowDamaged);
    const layout = { size: manifest.size, chunk_bytes: manifest.chunk_bytes, whole: undefined, manifest };
    const object = new StoredObject(address, hash, media_type, layout, this.#contents);
    return { object, bytes: OBJECT_OVERHEAD_BYTES + manifest.pages.cost_bytes };
  }

  /** Coalesced: concurrent readers share one read and leave by their own signals. */
  async #page(page: PageRef, signal: AbortSignal): Promise<EntryTree> {
    const key = pageKey(page);
    return await this.#pageReads.run(key, signal, async (flight) => {
      const { payload } = await this.#contentRecord(page.id, flight.signal);
      if (payload.length !== page.entries * ENTRY_BYTES) {
        throw new RonError('integrity', `a page of the manifest has ${payload.length} bytes`);
      }
      const tree = await EntryTree.verify(payload, page.expected, flight.signal).catch(rethrowDamaged);
      this.#pages.set(key, tree, tree.cost_bytes);
      return tree;
    });
  }

  async #content(id: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const key = chunkKey(id);
    const known = this.cache.get(key);
    if (known !== undefined) return known;
    return await this.#reads.run(key, signal, async (flight) => {
      const { payload } = await this.#contentRecord(id, flight.signal);
      this.cache.set(key, payload, payload.length);
      return payload;
    });
  }

  async #contentRecord(id: Uint8Array, signal: AbortSignal): Promise<StoredRecord> {
    const record = await this.volume.get('content', id, signal);
    if (record === undefined) throw this.#missingPart({ details: { id: Buffer.from(id).toString('hex') } });
    return record;
  }

  /** All of them, if all are in memory. */
  #cached(ids: readonly Uint8Array[]): readonly Uint8Array[] | undefined {
    if (!ids.every((id) => this.cache.has(chunkKey(id)))) return undefined;
    return ids.map((id) => this.cache.get(chunkKey(id))!);
  }

  /** In order. Cached contents come from memory; runs of uncached ones are read together. */
  async *#contentsOf(
    ids: readonly Uint8Array[],
    signal: AbortSignal,
  ): AsyncGenerator<readonly Uint8Array[], void, void> {
    let at = 0;
    while (at < ids.length) {
      const cached = this.#cachedFrom(ids, at);
      if (cached.length > 0) {
        yield cached;
        at += cached.length;
        continue;
      }
      let end = at + 1;
      while (end < ids.length && !this.cache.has(chunkKey(ids[end]!))) end += 1;
      for await (const batch of this.#missing(ids.slice(at, end), signal)) {
        for (const bytes of batch) {
          // A copy: a cached view of one chunk would keep the buffer of the whole batch alive.
          this.cache.offer(chunkKey(ids[at]!), bytes.length, () => Uint8Array.from(bytes));
          at += 1;
        }
        yield batch;
      }
    }
  }

  #cachedFrom(ids: readonly Uint8Array[], from: number): readonly Uint8Array[] {
    const cached: Uint8Array[] = [];
    for (let at = from; at < ids.length; at++) {
      const known = this.cache.get(chunkKey(ids[at]!));
      if (known === undefined) break;
      cached.push(known);
    }
    return cached;
  }

  async *#missing(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    try {
      yield* this.volume.getMany(ids, signal);
    } catch (error) {
      if (!(error instanceof RonError) || error.code !== 'not_found') throw error;
      throw this.#missingPart({ cause: error });
    }
  }
}

/** The expected value is part of the key: a page that was verified for one value proves nothing about another. */
const pageKey = ({ id, expected }: PageRef): string => chunkKey(id) + chunkKey(expected.value);

function rethrowDamaged(error: unknown): never {
  if (!(error instanceof ManifestError)) throw error;
  throw new RonError('integrity', 'the manifest of the object is damaged', { cause: error });
}

function sizeOf({ payload }: StoredRecord): number {
  try {
    return manifestSize(payload);
  } catch (error) {
    return rethrowDamaged(error);
  }
}

const mediaTypeOf = ({ meta }: StoredRecord): string => utf8.decode(meta);

const chunkPool = (chunk_bytes: number): BufferPool =>
  new BufferPool(chunk_bytes, Math.ceil(CHUNKS_KEPT_BYTES / chunk_bytes));
