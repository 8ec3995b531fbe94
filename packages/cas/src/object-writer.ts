/**
 * Writes one object from a stream of bytes whose address is not known before the end.
 *
 * Promise: one pass: ids and subtree values are made as bytes come. Nothing is visible under the address before `finish`
 * has made chunks, pages and manifest durable, in that order. What was written for an object that is not finished is
 * garbage that compaction takes.
 * Bound: one chunk being filled and `WINDOW_CHUNKS` on their way to disk; `write` waits when the window is full.
 * Cancellation: by the signal given to each call; after an error or `abort` the writer is of no more use.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { assert, RonError } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { combineSubtrees, subtreeValue } from '@ron/simd';
import { chunkKey, type ChunkKey, type Leases } from './leases.ts';
import { encodeManifest, encodePage, PAGE_ENTRIES_MAX, subtreeOf, type Entry } from './manifest.ts';
import { RecordType } from './record-types.ts';
import type { NewRecord, Volume } from './volume.ts';

const WINDOW_CHUNKS = 16;
export const MEDIA_TYPE_DEFAULT = 'application/octet-stream';

export interface Written {
  readonly address: Address;
  readonly size: number;
  /** It was here before, whole and durable. */
  readonly existed: boolean;
}

export interface FinishInit {
  /** The address that the sender claims. A mismatch is refused and leaves nothing. */
  expected?: Address | undefined;
  media_type?: string | undefined;
  /** Told the address before the object becomes visible; what it throws refuses the object. */
  onAddress?: ((address: Address) => void) | undefined;
}

export interface ObjectWriterInit {
  volume: Volume;
  leases: Leases;
  chunk_bytes: number;
  bytes_max: number;
}

export class ObjectWriter {
  readonly #init: ObjectWriterInit;
  readonly #leased: ChunkKey[] = [];
  readonly #window = new Set<Promise<void>>();
  /** Pages that are full, and the entries of the one being filled. */
  readonly #pages: Entry[] = [];
  #entries: Entry[] = [];
  #buffer: Buffer;
  #filled = 0;
  #size = 0;
  /** The first full chunk waits: if nothing follows it is the whole object, and one record. */
  #first: Buffer | undefined;
  #failure: unknown;
  #ended = false;

  constructor(init: ObjectWriterInit) {
    this.#init = init;
    this.#buffer = Buffer.allocUnsafe(Math.min(init.chunk_bytes, 4096));
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
      if (this.#filled === this.#init.chunk_bytes) await this.#flushChunk(signal);
      const count = Math.min(bytes.length - at, this.#init.chunk_bytes - this.#filled);
      this.#fill(bytes.subarray(at, at + count));
      at += count;
    }
  }

  /** Makes the object durable and visible. */
  async finish(init: FinishInit, signal: AbortSignal): Promise<Written> {
    this.#requireUsable();
    try {
      return await (this.#isSmall() ? this.#finishSmall(init, signal) : this.#finishLarge(init, signal));
    } finally {
      this.abort();
    }
  }

  /** Lets go of everything. Idempotent. */
  abort(): void {
    this.#ended = true;
    for (const key of this.#leased.splice(0)) this.#init.leases.release(key);
    this.#first = undefined;
    this.#entries = [];
  }

  #requireUsable(): void {
    assert(!this.#ended, 'the writer has ended');
    if (this.#failure !== undefined) throw this.#failure;
  }

  #isSmall(): boolean {
    return this.#first === undefined && this.#entries.length === 0 && this.#pages.length === 0;
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

  /** Sends the chunk that is full on its way; another one follows it. */
  async #flushChunk(signal: AbortSignal): Promise<void> {
    const chunk = this.#buffer.subarray(0, this.#filled);
    this.#buffer = Buffer.allocUnsafe(this.#init.chunk_bytes);
    this.#filled = 0;
    if (this.#isSmall()) {
      this.#first = chunk;
      return;
    }
    const first = this.#first;
    this.#first = undefined;
    if (first !== undefined) await this.#storeChunk(first, signal);
    await this.#storeChunk(chunk, signal);
  }

  async #storeChunk(chunk: Buffer, signal: AbortSignal): Promise<void> {
    const index = this.#pages.length * PAGE_ENTRIES_MAX + this.#entries.length;
    const id = blake3(chunk);
    const entry = { id, subtree: subtreeValue(chunk, index * this.#init.chunk_bytes) };
    await this.#put({ type: RecordType.chunk, id, payload: chunk }, signal);
    this.#entries.push(entry);
    if (this.#entries.length === PAGE_ENTRIES_MAX) await this.#storePage(signal);
  }

  async #storePage(signal: AbortSignal): Promise<void> {
    const payload = encodePage(this.#entries);
    const id = blake3(payload);
    await this.#put({ type: RecordType.page, id, payload }, signal);
    this.#pages.push({ id, subtree: subtreeOf(this.#entries.map((entry) => entry.subtree)) });
    this.#lastPage = this.#entries;
    this.#entries = [];
  }

  /** The entries of the last page: when it is the only one, they make the address. */
  #lastPage: Entry[] = [];

  /** Leases the content, then stores it unless it is here. Errors come out at the next call. */
  async #put(record: NewRecord, signal: AbortSignal): Promise<void> {
    const { volume, leases } = this.#init;
    const key = chunkKey(record.id);
    leases.take(key);
    this.#leased.push(key);
    if (volume.isDurable('content', record.id)) return;
    const stored: Promise<void> = volume
      .put([record], signal, 'later')
      .catch((error: unknown) => void (this.#failure ??= error))
      .finally(() => this.#window.delete(stored));
    this.#window.add(stored);
    if (this.#window.size >= WINDOW_CHUNKS) await Promise.race(this.#window);
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #finishSmall(init: FinishInit, signal: AbortSignal): Promise<Written> {
    const payload = this.#buffer.subarray(0, this.#filled);
    const id = blake3(payload);
    const address = this.#requireAllowed(formatAddress(id), init);
    if (this.#init.volume.isDurable('object', id)) return { address, size: this.#size, existed: true };
    await this.#init.volume.put([{ type: RecordType.object, id, payload, meta: metaOf(init) }], signal);
    return { address, size: this.#size, existed: false };
  }

  async #finishLarge(init: FinishInit, signal: AbortSignal): Promise<Written> {
    const { volume, chunk_bytes } = this.#init;
    const rest = this.#buffer.subarray(0, this.#filled);
    const first = this.#first;
    this.#first = undefined;
    if (first !== undefined) await this.#storeChunk(first, signal);
    if (rest.length > 0) await this.#storeChunk(rest, signal);
    if (this.#entries.length > 0) await this.#storePage(signal);
    const values = (this.#pages.length === 1 ? this.#lastPage : this.#pages).map((entry) => entry.subtree);
    const hash = combineSubtrees(values);
    const address = this.#requireAllowed(formatAddress(hash), init);
    if (volume.isDurable('object', hash)) return { address, size: this.#size, existed: true };
    await this.#makeDurable(signal);
    const payload = encodeManifest({ size: this.#size, chunk_bytes, pages: this.#pages });
    await volume.put([{ type: RecordType.manifest, id: hash, payload, meta: metaOf(init) }], signal);
    return { address, size: this.#size, existed: false };
  }

  /** Everything that the manifest will name is durable before the manifest is written. */
  async #makeDurable(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#window);
    if (this.#failure !== undefined) throw this.#failure;
    const { volume } = this.#init;
    await volume.sync(signal);
    for (const key of this.#leased) {
      if (volume.isDurable('content', Buffer.from(key, 'latin1'))) continue;
      throw new RonError('not_ready', 'a part of the object could not be made durable: send it again', {
        retry_after_ms: 1000,
      });
    }
  }

  #requireAllowed(address: Address, { expected, onAddress }: FinishInit): Address {
    onAddress?.(address);
    if (expected === undefined || expected === address) return address;
    throw new RonError('address_mismatch', 'the bytes do not have the address they were sent to', {
      details: { expected, actual: address },
    });
  }
}

const metaOf = (init: FinishInit): Buffer => Buffer.from(init.media_type ?? MEDIA_TYPE_DEFAULT, 'utf8');
