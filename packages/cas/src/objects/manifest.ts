/**
 * The manifest of an object of several chunks. It has two levels, so that an object of terabytes needs no huge record.
 *
 *     manifest: size, chunk_bytes, then for each page its id (32) and its subtree value (32)
 *     page:     for each of up to 4096 chunks its id (32) and its subtree value (32)
 *
 * A full page is a complete subtree of the BLAKE3 tree. So the values of the pages combine to the address, the values in
 * a page combine to the page's value, and nothing in a manifest has to be trusted. Readers verify with `readManifest` and
 * `EntryTree`, which keep entries packed; background walks use `parseManifest` and `parsePage`.
 */
import { BLAKE3_BYTES, combineInner } from '@ron/simd';
import { ENTRY_BYTES, EntryTree, ManifestError, type ExpectedValue } from './entry-tree.ts';

export { ManifestError };

export const PAGE_ENTRIES_MAX = 4096;
const HEADER_BYTES = 16;
const VERSION = 1;

export interface Entry {
  readonly id: Uint8Array;
  readonly subtree: Uint8Array;
}

export interface Manifest {
  readonly size: number;
  readonly chunk_bytes: number;
  readonly pages: readonly Entry[];
}

export const chunksOf = (size: number, chunk_bytes: number): number => Math.ceil(size / chunk_bytes);

function encodeEntries(entries: readonly Entry[], into: Buffer, at: number): void {
  entries.forEach((entry, index) => {
    into.set(entry.id, at + index * ENTRY_BYTES);
    into.set(entry.subtree, at + index * ENTRY_BYTES + BLAKE3_BYTES);
  });
}

function decodeEntries(bytes: Uint8Array): Entry[] {
  const entries: Entry[] = [];
  for (let from = 0; from < bytes.length; from += ENTRY_BYTES) {
    entries.push({
      id: bytes.subarray(from, from + BLAKE3_BYTES),
      subtree: bytes.subarray(from + BLAKE3_BYTES, from + ENTRY_BYTES),
    });
  }
  return entries;
}

/** The entries of a page, not verified. */
export const entriesOfPage = (bytes: Uint8Array): Entry[] => decodeEntries(bytes);

export function encodePage(entries: readonly Entry[]): Buffer {
  const bytes = Buffer.allocUnsafe(entries.length * ENTRY_BYTES);
  encodeEntries(entries, bytes, 0);
  return bytes;
}

export function encodeManifest(manifest: Manifest): Buffer {
  const bytes = Buffer.allocUnsafe(HEADER_BYTES + manifest.pages.length * ENTRY_BYTES);
  bytes.writeBigUInt64LE(BigInt(manifest.size), 0);
  bytes.writeUInt32LE(manifest.chunk_bytes, 8);
  bytes.writeUInt32LE(VERSION, 12);
  encodeEntries(manifest.pages, bytes, HEADER_BYTES);
  return bytes;
}

/** Combines the values of neighbours, not at the root. */
export const subtreeOf = (values: readonly Uint8Array[]): Uint8Array => combineInner(values);

/** A manifest as readers keep it. */
export interface PackedManifest {
  readonly size: number;
  readonly chunk_bytes: number;
  readonly pages: EntryTree;
}

/** The manifest in `bytes`, verified as far as it can be without its pages. Keeps a copy of its entries. */
export async function readManifest(
  bytes: Uint8Array,
  address_hash: Uint8Array,
  signal: AbortSignal,
): Promise<PackedManifest> {
  const sizes = sizesIn(bytes);
  const entries = Uint8Array.from(bytes.subarray(HEADER_BYTES));
  return { ...sizes, pages: await EntryTree.verify(entries, expectedOfPages(entries, address_hash), signal) };
}

/** With one page the root lies inside it: then only the page can prove the address. */
function expectedOfPages(entries: Uint8Array, address_hash: Uint8Array): ExpectedValue {
  if (entries.length > ENTRY_BYTES) return { value: address_hash, isRoot: true };
  return { value: entries.subarray(BLAKE3_BYTES), isRoot: false };
}

/** The manifest in `bytes`, verified as far as it can be without its pages. */
export function parseManifest(bytes: Uint8Array, address_hash: Uint8Array): Manifest {
  const sizes = sizesIn(bytes);
  const entries = bytes.subarray(HEADER_BYTES);
  EntryTree.verifyNow(entries, expectedOfPages(entries, address_hash));
  return { ...sizes, pages: decodeEntries(entries) };
}

/** The size that a manifest states. */
export const manifestSize = (bytes: Uint8Array): number => sizesIn(bytes).size;

function sizesIn(bytes: Uint8Array): Pick<Manifest, 'size' | 'chunk_bytes'> {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (buffer.length <= HEADER_BYTES || (buffer.length - HEADER_BYTES) % ENTRY_BYTES !== 0) {
    throw new ManifestError(`a manifest of ${buffer.length} bytes`);
  }
  if (buffer.readUInt32LE(12) !== VERSION) throw new ManifestError(`manifest version ${buffer.readUInt32LE(12)}`);
  const size = Number(buffer.readBigUInt64LE(0));
  const chunk_bytes = buffer.readUInt32LE(8);
  const isPower = chunk_bytes >= 1024 && Number.isInteger(Math.log2(chunk_bytes));
  const chunks = chunksOf(size, chunk_bytes);
  if (!Number.isSafeInteger(size) || !isPower || chunks < 2) throw new ManifestError('impossible sizes in a manifest');
  const pages = (buffer.length - HEADER_BYTES) / ENTRY_BYTES;
  if (pages !== Math.ceil(chunks / PAGE_ENTRIES_MAX)) throw new ManifestError('pages are missing in a manifest');
  return { size, chunk_bytes };
}

/** How many entries page `index` has. */
export function pageEntries({ size, chunk_bytes }: Pick<Manifest, 'size' | 'chunk_bytes'>, index: number): number {
  return Math.min(PAGE_ENTRIES_MAX, chunksOf(size, chunk_bytes) - index * PAGE_ENTRIES_MAX);
}

/** The entries of page `index`, verified against the manifest and, when it is the only page, against the address. */
export function parsePage(bytes: Uint8Array, manifest: Manifest, index: number, address_hash: Uint8Array): Entry[] {
  const expected = pageEntries(manifest, index) * ENTRY_BYTES;
  if (bytes.length !== expected) throw new ManifestError(`page ${index} has ${bytes.length} bytes`);
  const isRoot = manifest.pages.length === 1;
  EntryTree.verifyNow(bytes, { value: isRoot ? address_hash : manifest.pages[index]!.subtree, isRoot });
  return decodeEntries(bytes);
}
