/**
 * What an object of several chunks is made of, in two levels, so that an object of terabytes needs no huge record.
 *
 *     manifest: size, chunk_bytes, then for each page its id (32) and its subtree value (32)
 *     page:     for each of up to 4096 chunks its id (32) and its subtree value (32)
 *
 * A full page is a complete subtree of the BLAKE3 tree. So the values of the pages combine to the address, the values in
 * a page combine to the page's value, and nothing in a manifest has to be believed: `parseManifest` checks it against
 * the address, `parsePage` a page against the manifest.
 */
import { BLAKE3_BYTES, combineSubtrees, parentValue } from '@ron/simd';

export const PAGE_ENTRIES_MAX = 4096;
const ENTRY_BYTES = 2 * BLAKE3_BYTES;
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

/** A manifest or page that does not fit what points to it. */
export class ManifestError extends Error {
  override readonly name = 'ManifestError';
}

export const chunksOf = (size: number, chunk_bytes: number): number => Math.ceil(size / chunk_bytes);

function encodeEntries(entries: readonly Entry[], into: Buffer, at: number): void {
  entries.forEach((entry, index) => {
    into.set(entry.id, at + index * ENTRY_BYTES);
    into.set(entry.subtree, at + index * ENTRY_BYTES + BLAKE3_BYTES);
  });
}

function decodeEntries(bytes: Uint8Array, at: number): Entry[] {
  const entries: Entry[] = [];
  for (let from = at; from < bytes.length; from += ENTRY_BYTES) {
    entries.push({
      id: bytes.subarray(from, from + BLAKE3_BYTES),
      subtree: bytes.subarray(from + BLAKE3_BYTES, from + ENTRY_BYTES),
    });
  }
  return entries;
}

/** What a page names, unchecked. */
export const entriesOfPage = (bytes: Uint8Array): Entry[] => decodeEntries(bytes, 0);

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
export const subtreeOf = (values: readonly Uint8Array[]): Uint8Array => levelsOf(values).at(-1)![0]!;

/** The values, those of pairs of them, those of pairs of pairs, up to the one of all; an odd one goes up as it is. */
export function levelsOf(values: readonly Uint8Array[]): readonly (readonly Uint8Array[])[] {
  if (values.length === 0) throw new ManifestError('no values to combine');
  const levels = [values];
  for (let level = values; level.length > 1; level = levels.at(-1)!) {
    const next: Uint8Array[] = [];
    for (let at = 0; at + 1 < level.length; at += 2) next.push(parentValue(level[at]!, level[at + 1]!, false));
    if (level.length % 2 === 1) next.push(level.at(-1)!);
    levels.push(next);
  }
  return levels;
}

/** The manifest in `bytes`, checked as far as it can be without its pages. */
export function parseManifest(bytes: Uint8Array, address_hash: Uint8Array): Manifest {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (buffer.length <= HEADER_BYTES || (buffer.length - HEADER_BYTES) % ENTRY_BYTES !== 0) {
    throw new ManifestError(`a manifest of ${buffer.length} bytes`);
  }
  if (buffer.readUInt32LE(12) !== VERSION) throw new ManifestError(`manifest version ${buffer.readUInt32LE(12)}`);
  const manifest = {
    size: Number(buffer.readBigUInt64LE(0)),
    chunk_bytes: buffer.readUInt32LE(8),
    pages: decodeEntries(bytes, HEADER_BYTES),
  };
  requireFits(manifest);
  // With one page the root is inside it: then the page proves the address.
  if (manifest.pages.length > 1) {
    const root = combineSubtrees(manifest.pages.map((page) => page.subtree));
    if (Buffer.compare(root, address_hash) !== 0) throw new ManifestError('the manifest is of another object');
  }
  return manifest;
}

function requireFits({ size, chunk_bytes, pages }: Manifest): void {
  const isPower = chunk_bytes >= 1024 && Number.isInteger(Math.log2(chunk_bytes));
  const chunks = chunksOf(size, chunk_bytes);
  if (!Number.isSafeInteger(size) || !isPower || chunks < 2) throw new ManifestError('impossible sizes in a manifest');
  if (pages.length !== Math.ceil(chunks / PAGE_ENTRIES_MAX)) throw new ManifestError('pages are missing in a manifest');
}

/** The entries of page `index`, checked against the manifest and, when it is the only page, against the address. */
export function parsePage(bytes: Uint8Array, manifest: Manifest, index: number, address_hash: Uint8Array): Entry[] {
  const chunks = chunksOf(manifest.size, manifest.chunk_bytes);
  const expected = Math.min(PAGE_ENTRIES_MAX, chunks - index * PAGE_ENTRIES_MAX);
  if (bytes.length !== expected * ENTRY_BYTES) throw new ManifestError(`page ${index} has ${bytes.length} bytes`);
  const entries = decodeEntries(bytes, 0);
  const values = entries.map((entry) => entry.subtree);
  const isOnly = manifest.pages.length === 1;
  const value = isOnly ? combineSubtrees(values) : subtreeOf(values);
  const wanted = isOnly ? address_hash : manifest.pages[index]!.subtree;
  if (Buffer.compare(value, wanted) !== 0) throw new ManifestError(`page ${index} does not fit the object`);
  return entries;
}
