/**
 * Writes one object from a stream of bytes whose address is not known before the end.
 *
 * Contract: one pass; ids and subtree values are computed as bytes arrive. Nothing is visible under the address before
 * `finish` has made chunks, pages and manifest durable, in that order. `checkpoint` returns a state from which another
 * writer can resume; everything that the state references is durable. Compaction reclaims the contents of an unfinished
 * object once they are no longer leased.
 * Bound: one batch of chunks being filled and one being written; `write` waits for the latter. One lease for each chunk of
 * the current page and for each earlier page. Cancellation: by the signal of each call; after an error or `abort` the writer
 * cannot be used.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { assert, RonError, type BufferPool } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { combineSubtrees, subtreeValue } from '@ron/simd';
import { isIntact } from '../volume/verify-record.ts';
import { chunkKey, idOfKey, type ChunkKey } from './leases.ts';
import { encodeManifest, encodePage, PAGE_ENTRIES_MAX, subtreeOf, type Entry } from './manifest.ts';
import { putObject, putSmall, requireAllowed, type FinishInit, type ObjectPlace, type Written } from './put-object.ts';
import { RecordType } from '../volume/record-types.ts';
import type { NewRecord } from '../volume/volume.ts';

/** Chunks are written in batches: for single chunks the system calls would cost more than the bytes. */
export const BATCH_BYTES_DEFAULT = 512 * 1024;

/** Contents that are rewritten concurrently. */
const REWRITES_AT_ONCE = 8;

/** The state of an unfinished object. Its owner holds leases on the pages and chunks that it references. */
export interface WriterState {
  readonly chunk_bytes: number;
  /** The full pages. */
  readonly pages: readonly Entry[];
  /** The chunks of the page after them. */
  readonly entries: readonly Entry[];
  /** The bytes after those: at most a chunk, and empty only if the object is empty so far. */
  readonly tail: Uint8Array;
}

export interface ObjectWriterInit extends ObjectPlace {
  chunk_bytes: number;
  /** Buffers of `chunk_bytes` for chunks that are being written. */
  chunks: BufferPool;
  bytes_max: number;
  /** Bytes that are written together. Default 512 KiB. */
  batch_bytes?: number | undefined;
  /** The state to resume from. Default: the beginning. */
  from?: WriterState | undefined;
}

export class ObjectWriter {
  readonly #init: ObjectWriterInit;
  readonly #batch_bytes_max: number;
  /** Contents of the current page that this writer has stored or found stored. */
  readonly #leased: ChunkKey[] = [];
  /** How many of them are known to be durable; a checkpoint checks only the rest. */
  #durable = 0;
  readonly #leasedPages: ChunkKey[] = [];
  /** Contents that were put since the last sync and are not visible yet. At most those of one page. */
  readonly #unsynced = new Set<ChunkKey>();
  readonly #pages: Entry[];
  #entries: Entry[];
  /** The entries of the last stored page. If it is the only page, the address is computed from them. */
  #lastPage: readonly Entry[] = [];
  #buffer: Buffer;
  #filled = 0;
  #size: number;
  /** Contents of the next batch. */
  #batch: NewRecord[] = [];
  #batch_bytes = 0;
  #storing: Promise<void> | undefined;
  #failure: unknown;
  #ended = false;

  constructor(init: ObjectWriterInit) {
    const { from, chunk_bytes } = init;
    this.#init = init;
    this.#batch_bytes_max = init.batch_bytes ?? BATCH_BYTES_DEFAULT;
    this.#pages = [...(from?.pages ?? [])];
    this.#entries = [...(from?.entries ?? [])];
    this.#size = (this.#pages.length * PAGE_ENTRIES_MAX + this.#entries.length) * chunk_bytes;
    this.#buffer = Buffer.allocUnsafe(Math.min(chunk_bytes, 4096));
    if (from !== undefined) this.#fill(from.tail);
    assert(this.#size === 0 || this.#filled > 0, 'a chunk is stored only when more bytes follow');
  }

  get size(): number {
    return this.#size;
  }

  async write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    this.#requireUsable();
    if (this.#size + bytes.length > this.#init.bytes_max) {
      throw new RonError('payload_too_large', `an object has at most ${this.#init.bytes_max} bytes`);
    }
    for (let at = 0; at < bytes.length;) {
      // Only when more bytes follow: an object of exactly one chunk is one record.
      if (this.#filled === this.#init.chunk_bytes) await this.#flushChunk(signal);
      // [storage I-10] Chunks have a fixed size, however the body arrived.
      const count = Math.min(bytes.length - at, this.#init.chunk_bytes - this.#filled);
      this.#fill(bytes.subarray(at, at + count));
      at += count;
    }
  }

  /** Makes all written bytes durable and returns the state from which another writer can resume. */
  async checkpoint(signal: AbortSignal): Promise<WriterState> {
    this.#requireUsable();
    await this.#makeDurable(signal);
    const tail = Uint8Array.from(this.#buffer.subarray(0, this.#filled));
    const { chunk_bytes } = this.#init;
    return { chunk_bytes, pages: [...this.#pages], entries: [...this.#entries], tail };
  }

  /** Makes the object durable and visible. */
  async finish(init: FinishInit, signal: AbortSignal): Promise<Written> {
    this.#requireUsable();
    try {
      const isSmall = this.#entries.length === 0 && this.#pages.length === 0;
      return await (isSmall ? this.#finishSmall(init, signal) : this.#finishLarge(init, signal));
    } finally {
      this.abort();
    }
  }

  /** Releases all leases. Idempotent. */
  abort(): void {
    this.#ended = true;
    for (const key of this.#leased.splice(0)) this.#init.leases.release(key);
    for (const key of this.#leasedPages.splice(0)) this.#init.leases.releasePage(key);
    this.#entries = [];
    this.#lastPage = [];
  }

  #requireUsable(): void {
    assert(!this.#ended, 'the writer has finished or was aborted');
    if (this.#failure !== undefined) throw this.#failure;
  }

  #fill(bytes: Uint8Array): void {
    const needed = this.#filled + bytes.length;
    if (needed > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.min(this.#init.chunk_bytes, Math.max(needed, this.#buffer.length * 4)));
      larger.set(this.#buffer.subarray(0, this.#filled));
      this.#buffer = larger;
    }
    this.#buffer.set(bytes, this.#filled);
    this.#filled = needed;
    this.#size += bytes.length;
  }

  /** Adds the filled chunk to the current page and to the next batch. */
  async #flushChunk(signal: AbortSignal): Promise<void> {
    const chunk = this.#buffer.subarray(0, this.#filled);
    this.#buffer = this.#init.chunks.take();
    this.#filled = 0;
    const index = this.#pages.length * PAGE_ENTRIES_MAX + this.#entries.length;
    const id = blake3(chunk);
    this.#entries.push({ id, subtree: subtreeValue(chunk, index * this.#init.chunk_bytes) });
    await this.#put({ type: RecordType.chunk, id, payload: chunk }, signal);
    if (this.#entries.length === PAGE_ENTRIES_MAX) await this.#storePage(signal);
  }

  /** Makes a full page and its chunks durable. From then on the lease of the page replaces those of its chunks. */
  async #storePage(signal: AbortSignal): Promise<void> {
    const payload = encodePage(this.#entries);
    const id = blake3(payload);
    await this.#put({ type: RecordType.page, id, payload }, signal);
    this.#pages.push({ id, subtree: subtreeOf(this.#entries.map((entry) => entry.subtree)) });
    this.#lastPage = this.#entries;
    this.#entries = [];
    // Checks all chunks of the page again: a volume may have gone since the last checkpoint, and no later check covers them.
    this.#durable = 0;
    await this.#makeDurable(signal);
    this.#durable = 0;
    const key = chunkKey(id);
    this.#init.leases.takePage(key);
    this.#leasedPages.push(key);
    for (const each of this.#leased.splice(0)) this.#init.leases.release(each);
  }

  /** Leases the content, then stores it unless it is stored already. One batch is written at a time. */
  async #put(record: NewRecord, signal: AbortSignal): Promise<void> {
    const { volume, leases } = this.#init;
    const key = chunkKey(record.id);
    leases.take(key);
    this.#leased.push(key);
    if (this.#unsynced.has(key)) return this.#reuse(record);
    if (await isIntact(volume, 'content', record.id, signal)) return this.#reuse(record);
    this.#unsynced.add(key);
    this.#batch.push(record);
    this.#batch_bytes += record.payload.length;
    if (this.#batch_bytes >= this.#batch_bytes_max) await this.#sendBatch(signal);
  }

  async #sendBatch(signal: AbortSignal): Promise<void> {
    await this.#batchWritten();
    const batch = this.#batch;
    this.#batch = [];
    this.#batch_bytes = 0;
    if (batch.length === 0) return;
    const { volume } = this.#init;
    this.#storing = volume.put(batch, signal, 'later').then(
      () => {
        if (volume.isDoneWithPayloads) for (const record of batch) this.#reuse(record);
      },
      // The failed write may still read the buffers, so they are not reused.
      (error: unknown) => void (this.#failure ??= error),
    );
  }

  /** Returns the buffer of a chunk to the pool. */
  #reuse({ type, payload }: NewRecord): void {
    if (type === RecordType.chunk) this.#init.chunks.give(payload as Buffer);
  }

  /** Waits for the batch that is being written. */
  async #batchWritten(): Promise<void> {
    await this.#storing;
    this.#storing = undefined;
    if (this.#failure !== undefined) throw this.#failure;
  }

  #finishSmall(init: FinishInit, signal: AbortSignal): Promise<Written> {
    return putSmall(this.#init, this.#buffer.subarray(0, this.#filled), init, signal);
  }

  async #finishLarge(init: FinishInit, signal: AbortSignal): Promise<Written> {
    await this.#requireInherited(signal);
    await this.#flushChunk(signal);
    if (this.#entries.length > 0) await this.#storePage(signal);
    const id = combineSubtrees(this.#values());
    const address = requireAllowed(formatAddress(id), init);
    const { chunk_bytes } = this.#init;
    const payload = encodeManifest({ size: this.#size, chunk_bytes, pages: this.#pages });
    const existed = await putObject(this.#init, { type: RecordType.manifest, id, payload }, init, signal);
    return { address, size: this.#size, existed };
  }

  /** The subtree values that the address is computed from: those of the pages or, of a single page, those of its chunks. */
  #values(): Uint8Array[] {
    // A chunk is stored when more bytes follow it, so the last page is always filled by the writer that finishes.
    const level = this.#pages.length > 1 ? this.#pages : this.#lastPage;
    return level.map((entry) => entry.subtree);
  }

  /** Makes everything durable that a manifest or a state references. */
  async #makeDurable(signal: AbortSignal): Promise<void> {
    await this.#sendBatch(signal);
    await this.#batchWritten();
    const { volume } = this.#init;
    const needed = this.#leased.slice(this.#durable).map(idOfKey);
    await volume.sync(signal, needed);
    this.#unsynced.clear();
    await this.#requireDurable(needed, signal);
    this.#durable = this.#leased.length;
  }

  /** Contents that earlier writers stored were durable then; they must still exist. */
  async #requireInherited(signal: AbortSignal): Promise<void> {
    const { from } = this.#init;
    const named = [...(from?.pages ?? []), ...(from?.entries ?? [])];
    await this.#requireDurable(
      named.map(({ id }) => id),
      signal,
    );
  }

  /** Rewrites contents with too few copies: a volume that had one is absent or slow. */
  async #requireDurable(ids: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    const { volume } = this.#init;
    const lacking = ids.filter((id) => !volume.isDurable('content', id));
    for (let at = 0; at < lacking.length; at += REWRITES_AT_ONCE) {
      const some = lacking.slice(at, at + REWRITES_AT_ONCE).filter((id) => !volume.isDurable('content', id));
      if (some.length === 0) continue;
      const records = await Promise.all(some.map((id) => this.#readAnew(id, signal)));
      await volume.put(records, signal);
      if (!some.every((id) => volume.isDurable('content', id))) throw lostPart();
    }
  }

  async #readAnew(id: Uint8Array, signal: AbortSignal): Promise<NewRecord> {
    const left = await this.#init.volume.get('content', id, signal).catch(() => signal.throwIfAborted());
    if (left === undefined) throw lostPart();
    return { type: left.type === RecordType.page ? RecordType.page : RecordType.chunk, id, payload: left.payload };
  }
}

const lostPart = (): RonError =>
  new RonError('not_ready', 'failed to make a part of the object durable: send the object again', {
    retry_after_ms: 1000,
  });
