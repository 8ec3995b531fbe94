/**
 * An object to read: its size and type, any range of its bytes, and slices that prove themselves.
 *
 * Promise: every byte that comes out was checked against the address: chunks against their ids, ids against their page,
 * pages against the manifest, the manifest against the address. The first wrong one ends the read with `integrity`.
 * Bound: one run of neighbouring chunks (about 1 MiB) and one page of the manifest are held at a time.
 * Cancellation: by the signal, between two reads of the disk; stopping the iteration stops reading.
 */
import { RonError } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { encodeSlice, type Tree } from '@ron/simd';
import { hexOf } from './hex.ts';
import {
  chunksOf,
  levelsOf,
  ManifestError,
  PAGE_ENTRIES_MAX,
  parsePage,
  subtreeOf,
  type Entry,
  type Manifest,
} from './manifest.ts';

/** Where the parts of an object come from. Contents are checked against their ids. */
export interface Contents {
  get(id: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
  /** In batches, each valid until the next is asked for. */
  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncIterable<readonly Uint8Array[]>;
  /** All of them, if all are in memory. */
  cached(ids: readonly Uint8Array[]): readonly Uint8Array[] | undefined;
}

export interface ManifestDocument {
  readonly address: Address;
  readonly size: number;
  readonly chunk_bytes: number;
  readonly chunks: readonly string[];
  readonly subtrees: readonly string[];
  readonly media_type: string;
}

/** What an object is made of, whichever way it is stored. */
interface Layout {
  readonly size: number;
  readonly chunk_bytes: number;
  /** The whole object, when it is one record. */
  readonly whole: Uint8Array | undefined;
  readonly manifest: Manifest | undefined;
}

/** The part of the manifest that was needed last. */
interface Page {
  readonly index: number;
  readonly entries: readonly Entry[];
  /** Made when a proof needs them. */
  levels: readonly (readonly Uint8Array[])[] | undefined;
}

/** Chunks whose ids are looked up together: a few runs of neighbours. */
const LOOKUP_CHUNKS = 64;

export class StoredObject {
  readonly address: Address;
  readonly media_type: string;
  readonly size: number;
  readonly chunk_bytes: number;
  readonly #hash: Uint8Array;
  readonly #layout: Layout;
  readonly #contents: Contents;
  #page: Page | undefined;

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
    if (manifest?.pages.length !== 1 || this.#page === undefined) return undefined;
    return this.#contents.cached(this.#page.entries.map((entry) => entry.id));
  }

  /** The bytes from `start` up to and without `end`, in batches. A batch is valid until the next is asked for. */
  async *read(start: number, end: number, signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    const { whole } = this.#layout;
    if (whole !== undefined) {
      if (end > start) yield [whole.subarray(start, end)];
      return;
    }
    let chunk = Math.floor(start / this.chunk_bytes);
    const last = Math.ceil(end / this.chunk_bytes);
    while (chunk < last) {
      const entries = await this.#entriesFrom(chunk, Math.min(last - chunk, LOOKUP_CHUNKS), signal);
      const ids = entries.map((entry) => entry.id);
      for await (const batch of this.#contents.getMany(ids, signal)) {
        const first = chunk;
        chunk += batch.length;
        yield batch.map((bytes, index) => this.#within(bytes, first + index, start, end));
      }
    }
  }

  /** A bao slice over `length` bytes from `offset` on, in batches. A batch is valid until the next is asked for. */
  slice(offset: number, length: number, signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    return encodeSlice(this.#tree(), offset, length, signal);
  }

  /** The whole manifest. For objects so large that this would not fit a message, refused with `payload_too_large`. */
  async document(chunks_max: number, signal: AbortSignal): Promise<ManifestDocument> {
    const { address, size, chunk_bytes, media_type } = this;
    const count = this.#layout.manifest === undefined ? 1 : chunksOf(size, chunk_bytes);
    if (count > chunks_max) {
      throw new RonError('payload_too_large', `a manifest of ${count} chunks is not served: use bao slices`);
    }
    const chunks: string[] = [];
    const subtrees: string[] = [];
    if (this.#layout.manifest === undefined) chunks.push(hexOf(this.#hash));
    else {
      for (let chunk = 0; chunk < count; chunk += PAGE_ENTRIES_MAX) {
        for (const entry of (await this.#pageAt(chunk / PAGE_ENTRIES_MAX, signal)).entries) {
          chunks.push(hexOf(entry.id));
          subtrees.push(hexOf(entry.subtree));
        }
      }
    }
    return { address, size, chunk_bytes, chunks, subtrees, media_type };
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

  /** Of an answer with one group it is known before the read that many may want it: read once for all, and kept. */
  async #group(index: number, signal: AbortSignal): Promise<Uint8Array> {
    const [entry] = await this.#entriesFrom(index, 1, signal);
    const bytes = await this.#contents.get(entry!.id, signal);
    this.#requireLength(bytes, index);
    return bytes;
  }

  /** A subtree is some whole pages, or lies within one: both are powers of two, and aligned. */
  async #value(first: number, count: number, signal: AbortSignal): Promise<Uint8Array> {
    const { manifest } = this.#layout;
    if (manifest === undefined) throw new ManifestError('an object of one chunk has no inner values');
    if (count > PAGE_ENTRIES_MAX || (first % PAGE_ENTRIES_MAX === 0 && isWholePage(manifest, first, count))) {
      const page = first / PAGE_ENTRIES_MAX;
      const pages = manifest.pages.slice(page, page + Math.ceil(count / PAGE_ENTRIES_MAX));
      return subtreeOf(pages.map((each) => each.subtree));
    }
    const page = await this.#pageAt(Math.floor(first / PAGE_ENTRIES_MAX), signal);
    page.levels ??= levelsOf(page.entries.map((entry) => entry.subtree));
    const level = Math.ceil(Math.log2(count));
    return page.levels[level]![(first % PAGE_ENTRIES_MAX) >> level]!;
  }

  /** At most `count` entries from chunk `first` on, all of one page. */
  async #entriesFrom(first: number, count: number, signal: AbortSignal): Promise<readonly Entry[]> {
    const { entries } = await this.#pageAt(Math.floor(first / PAGE_ENTRIES_MAX), signal);
    const at = first % PAGE_ENTRIES_MAX;
    return entries.slice(at, at + count);
  }

  async #pageAt(index: number, signal: AbortSignal): Promise<Page> {
    if (this.#page?.index === index) return this.#page;
    // Each reader by its own signal: one that leaves must not end the others. The bytes are read once for all anyway.
    const page: Page = { index, entries: await this.#loadPage(index, signal), levels: undefined };
    this.#page = page;
    return page;
  }

  async #loadPage(index: number, signal: AbortSignal): Promise<readonly Entry[]> {
    const manifest = this.#layout.manifest as Manifest;
    const bytes = await this.#contents.get(manifest.pages[index]!.id, signal);
    try {
      return parsePage(bytes, manifest, index, this.#hash);
    } catch (error) {
      throw new RonError('integrity', 'the manifest of the object is damaged', { cause: error });
    }
  }

  /** What lies between `start` and `end` of a chunk. */
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

function isWholePage(manifest: Manifest, first: number, count: number): boolean {
  const chunks = chunksOf(manifest.size, manifest.chunk_bytes);
  return manifest.pages.length > 1 && count === Math.min(PAGE_ENTRIES_MAX, chunks - first);
}
