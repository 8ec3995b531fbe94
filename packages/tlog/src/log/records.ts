/**
 * The records of the file `entries`:
 *
 *     | length u16, big-endian | entry | the first 8 bytes of its leaf hash |
 *
 * Contract: the hash distinguishes a complete record from a torn write (a part, zeros, pages in any order).
 * Bound: one chunk in memory during a scan. Cancellation: between two chunks.
 */
import type { File } from '@ron/log';
import { leafHash } from '../tree/hash.ts';
import { ENTRY_BYTES_MAX, LENGTH_BYTES } from '../tiles/tiles.ts';

const TAG_BYTES = 8;
/** A few hundred records, so that hashing a chunk does not block the event loop for long. */
const CHUNK_BYTES = 256 * 1024;
export const RECORD_BYTES_MAX = LENGTH_BYTES + ENTRY_BYTES_MAX + TAG_BYTES;

export const recordBytes = (entry_bytes: number): number => LENGTH_BYTES + entry_bytes + TAG_BYTES;

export interface FoundRecord {
  readonly leaf: Buffer;
  /** The end of the record in the file. */
  readonly end: number;
}

export function encodeRecords(entries: readonly Uint8Array[], leaves: readonly Uint8Array[]): Buffer {
  const bytes = Buffer.allocUnsafe(entries.reduce((sum, entry) => sum + recordBytes(entry.length), 0));
  let at = 0;
  for (const [index, entry] of entries.entries()) {
    at = bytes.writeUInt16BE(entry.length, at);
    bytes.set(entry, at);
    at += entry.length;
    bytes.set((leaves[index] as Uint8Array).subarray(0, TAG_BYTES), at);
    at += TAG_BYTES;
  }
  return bytes;
}

/** The entry at `at`, without a check of its tag; undefined if it is incomplete. */
export function entryAt(bytes: Buffer, at: number): Buffer | undefined {
  if (at + LENGTH_BYTES > bytes.length) return undefined;
  const end = at + LENGTH_BYTES + bytes.readUInt16BE(at);
  return end + TAG_BYTES <= bytes.length ? bytes.subarray(at + LENGTH_BYTES, end) : undefined;
}

/** Converts the first `count` records to a bundle, which has no tags; undefined if there are fewer. */
export function bundleOf(bytes: Buffer, count: number): Buffer | undefined {
  const bundle = Buffer.allocUnsafe(bytes.length);
  let [from, to] = [0, 0];
  for (let index = 0; index < count; index++) {
    const entry = entryAt(bytes, from);
    if (entry === undefined) return undefined;
    bundle.set(bytes.subarray(from, from + LENGTH_BYTES + entry.length), to);
    from += recordBytes(entry.length);
    to += LENGTH_BYTES + entry.length;
  }
  return bundle.subarray(0, to);
}

/** Yields the complete records from `from` on, many at a time, up to the first incomplete one. */
export async function* scanRecords(
  file: File,
  from: number,
  signal: AbortSignal,
): AsyncGenerator<FoundRecord[], void, void> {
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  let position = from;
  for (;;) {
    signal.throwIfAborted();
    const count = await file.read(chunk, CHUNK_BYTES, position);
    const found = recordsIn(chunk.subarray(0, count), position);
    if (found.length === 0) return;
    position = found.at(-1)!.end;
    yield found;
  }
}

function recordsIn(bytes: Buffer, position: number): FoundRecord[] {
  const found: FoundRecord[] = [];
  let at = 0;
  for (let entry = entryAt(bytes, at); entry !== undefined; entry = entryAt(bytes, at)) {
    const leaf = leafHash(entry);
    const next = at + recordBytes(entry.length);
    if (leaf.compare(bytes, next - TAG_BYTES, next, 0, TAG_BYTES) !== 0) break;
    found.push({ leaf, end: position + next });
    at = next;
  }
  return found;
}
