/**
 * Writes one object from a stream of bytes whose address is not known before the end.
 *
 * Promise: one pass: ids and subtree values are made as bytes come. Nothing is visible under the address before `finish`
 * has made chunks, pages and manifest durable, in that order. `checkpoint` gives the state from which another writer can
 * go on, and everything that the state names is durable. Contents of an object that is not finished are
 * reclaimed by compaction once they are not leased.
 * Bound: one batch of chunks being filled and one on its way to disk; `write` waits for the second. A lease for each chunk of the
 * page at hand and for each page before it. Cancellation: by the signal given to each call; after an error or `abort` the
 * writer is of no more use.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { assert, RonError } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { combineSubtrees, subtreeValue } from '@ron/simd';
import type { BufferPool } from '../volume/buffer-pool.ts';
import { isIntact } from '../volume/intact.ts';
import { chunkKey, idOfKey, type ChunkKey } from './leases.ts';
import { encodeManifest, encodePage, PAGE_ENTRIES_MAX, subtreeOf, type Entry } from './manifest.ts';
import { putObject, putSmall, requireAllowed, type FinishInit, type ObjectPlace, type Written } from './put-object.ts';
import { RecordType } from '../volume/record-types.ts';
import type { NewRecord } from '../volume/volume.ts';

/** Chunks go to disk together: a write for each costs more in system calls than its bytes. */
export const BATCH_BYTES_DEFAULT = 512 * 1024;

/** Contents that are stored anew together. */
const ANEW_AT_ONCE = 8;

/** The state of an unfinished object. Its keeper holds leases on the pages and chunks that it names. */
export interface WriterState {
  readonly chunk_bytes: number;
  /** Pages that are full. */
  readonly pages: readonly Entry[];
  /** Chunks of the page after them. */
  readonly entries: readonly Entry[];
  /** Bytes after those: at most a chunk, and at least one byte unless there is nothing at all. */
  readonly tail: Uint8Array;
}

export interface ObjectWriterInit extends ObjectPlace {
  chunk_bytes: number;
  /** Memory for chunks on their way, `chunk_bytes` each. */
  chunks: BufferPool;
  bytes_max: number;
  /** What goes to disk together. Default 512 KiB. */
  batch_bytes?: number | undefined;
  /** Where to go on. Default: the beginning. */
  from?: WriterState | undefined;
}

export class ObjectWriter {
  readonly #init: ObjectWriterInit;
  readonly #batch_bytes_max: number;
  /** Contents of the page at hand, and pages before it, that this writer has stored or found stored. */
  readonly #leased: ChunkKey[] = [];
  /** So many of them were found durable since the last page: a checkpoint looks at the others. */
  #durable = 0;
  readonly #leasedPages: ChunkKey[] = [];
  /** Contents that were put since the last sync: the volume does not show them yet. At most those of one page. */
  readonly #unsynced = new Set<ChunkKey>();
  readonly #pages: Entry[];
  #entries: Entry[];
  /** The entries of the last page that was stored: when it is the only one, they make the address. */
  #lastPage: readonly Entry[] = [];
  #buffer: Buffer;
  #filled = 0;
  #size: number;
  /** Contents that wait to be sent on their way together. */
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
    assert(this.#size === 0 || this.#filled > 0, 'a chunk is stored when more bytes follow it');
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
      // Only when more follows: an object of just one chunk is one record.
      if (this.#filled === this.#init.chunk_bytes) await this.#flushChunk(signal);
      // [storage I-10] Chunks have a fixed size, however the body arrived.
      const count = Math.min(bytes.length - at, this.#init.chunk_bytes - this.#filled);
      this.#fill(bytes.subarray(at, at + count));
      at += count;
    }
  }

  /** Makes durable what was written, and tells from where another writer can go on. */
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

  /** Lets go of everything. Idempotent. */
  abort(): void {
    this.#ended = true;
    for (const key of this.#leased.splice(0)) this.#init.leases.release(key);
    for (const key of this.#leasedPages.splice(0)) this.#init.leases.releasePage(key);
    this.#entries = [];
    this.#lastPage = [];
  }

  #requireUsable(): void {
    assert(!this.#ended, 'the writer has ended');
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

  /** Sends the chunk that was filled on its way. */
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

  /** A full page is durable, and so is what it names: from now on its lease stands for theirs. */
  async #storePage(signal: AbortSignal): Promise<void> {
    const payload = encodePage(this.#entries);
    const id = blake3(payload);
    await this.#put({ type: RecordType.page, id, payload }, signal);
    this.#pages.push({ id, subtree: subtreeOf(this.#entries.map((entry) => entry.subtree)) });
    this.#lastPage = this.#entries;
    this.#entries = [];
    // All that the page names, once more: a volume may have gone since the last checkpoint, and this is the last check.
    this.#durable = 0;
    await this.#makeDurable(signal);
    this.#durable = 0;
    const key = chunkKey(id);
    this.#init.leases.takePage(key);
    this.#leasedPages.push(key);
    for (const each of this.#leased.splice(0)) this.#init.leases.release(each);
  }

  /** Leases the content, then stores it unless it is here. One batch is on its way at a time. */
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
    await this.#arrived();
    const batch = this.#batch;
    this.#batch = [];
    this.#batch_bytes = 0;
    if (batch.length === 0) return;
    const { volume } = this.#init;
    this.#storing = volume.put(batch, signal, 'later').then(
      () => {
        if (volume.isDoneWithPayloads) for (const record of batch) this.#reuse(record);
      },
      // Who knows what still reads them: their memory is left to the collector.
      (error: unknown) => void (this.#failure ??= error),
    );
  }

  /** The next chunk may overwrite this one: it is not read any more. */
  #reuse({ type, payload }: NewRecord): void {
    if (type === RecordType.chunk) this.#init.chunks.give(payload as Buffer);
  }

  /** Waits for what is on its way. */
  async #arrived(): Promise<void> {
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

  /** The subtree values that make the address: those of the pages or, when there is only one, those of its chunks. */
  #values(): Uint8Array[] {
    // A chunk is stored when more bytes follow it, so the last page is always filled by the writer that finishes.
    const level = this.#pages.length > 1 ? this.#pages : this.#lastPage;
    return level.map((entry) => entry.subtree);
  }

  /** Everything that a manifest or a state names is durable before it is returned. */
  async #makeDurable(signal: AbortSignal): Promise<void> {
    await this.#sendBatch(signal);
    await this.#arrived();
    const { volume } = this.#init;
    const needed = this.#leased.slice(this.#durable).map(idOfKey);
    await volume.sync(signal, needed);
    this.#unsynced.clear();
    await this.#requireDurable(needed, signal);
    this.#durable = this.#leased.length;
  }

  /** What other writers stored was durable then; it must still be there. */
  async #requireInherited(signal: AbortSignal): Promise<void> {
    const { from } = this.#init;
    const named = [...(from?.pages ?? []), ...(from?.entries ?? [])];
    await this.#requireDurable(
      named.map(({ id }) => id),
      signal,
    );
  }

  /** Contents with too few copies, because a volume that had one is gone or slow, are stored anew, some at a time. */
  async #requireDurable(ids: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    const { volume } = this.#init;
    const lacking = ids.filter((id) => !volume.isDurable('content', id));
    for (let at = 0; at < lacking.length; at += ANEW_AT_ONCE) {
      const some = lacking.slice(at, at + ANEW_AT_ONCE).filter((id) => !volume.isDurable('content', id));
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
  new RonError('not_ready', 'a part of the object could not be made durable: send it again', { retry_after_ms: 1000 });
