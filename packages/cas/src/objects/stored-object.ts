/**
 * An object to read: its size and type, any range of its bytes, and slices with proofs.
 *
 * Contract: every byte that comes out was verified against the address: chunks against their ids, ids against their page,
 * pages against the manifest, the manifest against the address. The first mismatch ends the read with `integrity`.
 * Bound: a reader holds one window of chunks (see read-ahead.ts) and `LOOKUP_CHUNKS` ids. Pages of the manifest belong to
 * the cache behind `Contents`; the object refers to none. Cancellation: by the signal, between two reads of the disk;
 * stopping the iteration stops reading.
 */
import { RonError } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { BLAKE3_BYTES as ID_BYTES, encodeSlice, type Tree } from '@ron/simd';
import { ManifestError, type EntryTree, type ExpectedValue } from './entry-tree.ts';
import { chunksOf, PAGE_ENTRIES_MAX, pageEntries, type PackedManifest } from './manifest.ts';
import { ReadWindow } from './read-ahead.ts';

/** The source of the parts of an object. Contents are verified against their ids. */
export interface Contents {
  get(id: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
  /** In batches, each valid until the next is requested. */
  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncIterable<readonly Uint8Array[]>;
  /** All of them, if all are in memory. */
  cached(ids: readonly Uint8Array[]): readonly Uint8Array[] | undefined;
  /** A page of a manifest, verified against its id and the value that its entries must combine to. */
  page(page: PageRef, signal: AbortSignal): Promise<EntryTree>;
  /** As `page`; undefined if it is not in memory. */
  cachedPage(page: PageRef): EntryTree | undefined;
}

/** A page as the manifest refers to it. */
export interface PageRef {
  readonly id: Uint8Array;
  readonly entries: number;
  readonly expected: ExpectedValue;
}

/** How an object is stored: one record, or a manifest. */
interface Layout {
  readonly size: number;
  readonly chunk_bytes: number;
  /** The whole object, when it is one record. */
  readonly whole: Uint8Array | undefined;
  readonly manifest: PackedManifest | undefined;
}

/** A reader copies this many ids at a time from the page, so that it does not keep the page in memory. */
const LOOKUP_CHUNKS = 128;

export class StoredObject {
  readonly address: Address;
  readonly media_type: string;
  readonly size: number;
  readonly chunk_bytes: number;
  readonly #hash: Uint8Array;
  readonly #layout: Layout;
  readonly #contents: Contents;

  constructor(address: Address, hash: Uint8Array, media_type: string, layout: Layout, contents: Contents) {
    this.address = address;
    this.media_type = media_type;
    this.size = layout.size;
    this.chunk_bytes = layout.chunk_bytes;
    this.#hash = hash;
    this.#layout = layout;
    this.#contents = contents;
  }

  /** The whole body, when it is one verified record in memory. */
  get whole(): Uint8Array | undefined {
    return this.#layout.whole;
  }

  /** The whole body, if all of it is verified and in memory. For objects of one page of chunks. */
  get inMemory(): readonly Uint8Array[] | undefined {
    const { whole, manifest } = this.#layout;
    if (whole !== undefined) return [whole];
    if (manifest?.pages.count !== 1) return undefined;
    const page = this.#contents.cachedPage(this.#pageRef(0));
    return page && this.#contents.cached(Array.from({ length: page.count }, (_, index) => page.idAt(index)));
  }

  /** The bytes from `start` up to and without `end`, in batches. A batch is valid until the next is requested. */
  async *read(start: number, end: number, signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    const { whole } = this.#layout;
    if (whole !== undefined) {
      if (end > start) yield [whole.subarray(start, end)];
      return;
    }
    const last = Math.ceil(end / this.chunk_bytes);
    using window = new ReadWindow(this.chunk_bytes);
    let ids: readonly Uint8Array[] = [];
    for (let chunk = Math.floor(start / this.chunk_bytes); chunk < last; window.ended()) {
      const left = last - chunk;
      if (ids.length < Math.min(left, window.wanted)) {
        ids = await this.#idsFrom(chunk, Math.min(left, Math.max(LOOKUP_CHUNKS, window.wanted)), signal);
      }
      const count = window.next(ids.length);
      for await (const batch of this.#contents.getMany(ids.slice(0, count), signal)) {
        const first = chunk;
        chunk += batch.length;
        window.given();
        yield batch.map((bytes, index) => this.#within(bytes, first + index, start, end));
        window.taken();
      }
      ids = ids.slice(count);
    }
  }

  /** A bao slice over `length` bytes from `offset` on, in batches. A batch is valid until the next is requested. */
  slice(offset: number, length: number, signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    return encodeSlice(this.#tree(), offset, length, signal);
  }

  /** How many chunks it has. An object of one record is its own only chunk. */
  get chunks(): number {
    return this.#layout.manifest === undefined ? 1 : chunksOf(this.size, this.chunk_bytes);
  }

  /** The ids of up to `count` chunks from `first` on, those of one page. Copies. */
  chunkIds(first: number, count: number, signal: AbortSignal): Promise<readonly Uint8Array[]> {
    return this.#layout.manifest === undefined ? Promise.resolve([this.#hash]) : this.#idsFrom(first, count, signal);
  }

  /** The chaining values of the same; an object of one record has none. */
  async chunkSubtrees(first: number, count: number, signal: AbortSignal): Promise<readonly Uint8Array[]> {
    const page = await this.#pageAt(Math.floor(first / PAGE_ENTRIES_MAX), signal);
    return copiesOf(page, first, count, (index) => page.subtreeAt(index));
  }

  /** The ids of the pages of its manifest. */
  *pageIds(): Generator<Uint8Array, void, void> {
    const { manifest } = this.#layout;
    for (let page = 0; page < (manifest?.pages.count ?? 0); page++) yield manifest!.pages.idAt(page);
  }

  #tree(): Tree {
    const { size, chunk_bytes } = this;
    return {
      size,
      group_bytes: chunk_bytes,
      value: (first, count, signal) => this.#value(first, count, signal),
      groups: (first, last, signal) => this.#groups(first, last, signal),
    };
  }

  async *#groups(first: number, last: number, signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    const { whole } = this.#layout;
    if (whole !== undefined) yield [whole];
    else if (first === last) yield [await this.#group(first, signal)];
    else yield* this.read(first * this.chunk_bytes, Math.min(this.size, (last + 1) * this.chunk_bytes), signal);
  }

  /** A single group is likely to be requested often: concurrent readers share one read, and it is cached. */
  async #group(index: number, signal: AbortSignal): Promise<Uint8Array> {
    const [id] = await this.#idsFrom(index, 1, signal);
    const bytes = await this.#contents.get(id!, signal);
    this.#requireLength(bytes, index);
    return bytes;
  }

  /** A subtree is some whole pages, or lies within one: both are powers of two, and aligned. */
  async #value(first: number, count: number, signal: AbortSignal): Promise<Uint8Array> {
    const { manifest } = this.#layout;
    if (manifest === undefined) throw new ManifestError('an object of one chunk has no inner values');
    const page = Math.floor(first / PAGE_ENTRIES_MAX);
    const at = first % PAGE_ENTRIES_MAX;
    const isPages = manifest.pages.count > 1 && at === 0 && count >= pageEntries(manifest, page);
    if (isPages) return manifest.pages.valueOf(page, Math.ceil(count / PAGE_ENTRIES_MAX));
    return (await this.#pageAt(page, signal)).valueOf(at, count);
  }

  async #idsFrom(first: number, count: number, signal: AbortSignal): Promise<readonly Uint8Array[]> {
    const page = await this.#pageAt(Math.floor(first / PAGE_ENTRIES_MAX), signal);
    return copiesOf(page, first, count, (index) => page.idAt(index));
  }

  #pageRef(index: number): PageRef {
    const manifest = this.#layout.manifest as PackedManifest;
    const isRoot = manifest.pages.count === 1;
    const value = isRoot ? this.#hash : manifest.pages.subtreeAt(index);
    return { id: manifest.pages.idAt(index), entries: pageEntries(manifest, index), expected: { value, isRoot } };
  }

  async #pageAt(index: number, signal: AbortSignal): Promise<EntryTree> {
    const page = this.#pageRef(index);
    return this.#contents.cachedPage(page) ?? (await this.#contents.page(page, signal));
  }

  /** The bytes of a chunk between `start` and `end` of the object. */
  #within(bytes: Uint8Array, chunk: number, start: number, end: number): Uint8Array {
    this.#requireLength(bytes, chunk);
    const at = chunk * this.chunk_bytes;
    if (start <= at && end >= at + bytes.length) return bytes;
    return bytes.subarray(Math.max(0, start - at), Math.min(bytes.length, end - at));
  }

  #requireLength(bytes: Uint8Array, chunk: number): void {
    const expected = Math.min(this.chunk_bytes, this.size - chunk * this.chunk_bytes);
    if (bytes.length !== expected) throw new RonError('integrity', `chunk ${chunk} has ${bytes.length} bytes`);
  }
}

/** Copies, in one stretch of memory: views would keep the page alive. */
function copiesOf(
  page: EntryTree,
  first: number,
  count: number,
  of: (index: number) => Uint8Array,
): readonly Uint8Array[] {
  const from = first % PAGE_ENTRIES_MAX;
  const length = Math.min(count, page.count - from);
  const bytes = new Uint8Array(length * ID_BYTES);
  return Array.from({ length }, (_, index) => {
    const at = index * ID_BYTES;
    bytes.set(of(from + index), at);
    return bytes.subarray(at, at + ID_BYTES);
  });
}
