/**
 * The entries of the fill log: JSON, one object per fill, and the announcements of prunings.
 *
 *     {"op":"fill","key":"live/tiles.example.org/a.png","host":"tiles.example.org","dialled":"192.0.2.7:443",
 *      "certificate_key":"9f86...","etag":"\"abc\"","size":1024,"b3":"b3:6fcb...","time_ms":1763308800000}
 *
 * Bound: `ENTRY_BYTES_MAX`.
 */
import { RonError } from '@ron/kernel';
import type { Provenance } from '../cache/cached-asset.ts';

/** A key of 8 KiB, an ETag of 4 KiB, and the other members, with their escapes. */
export const ENTRY_BYTES_MAX = 32 * 1024;

/** Throws `payload_too_large` above the bound. */
export function encodeFill(fill: Provenance): Uint8Array {
  const { key, host, dialled, certificate_key, etag = null, size, address: b3, time_ms } = fill;
  const bytes = Buffer.from(
    JSON.stringify({ op: 'fill', key, host, dialled, certificate_key, etag, size, b3, time_ms }),
  );
  if (bytes.length <= ENTRY_BYTES_MAX) return bytes;
  const message = `the entry of the fill log has ${bytes.length} bytes, the limit is ${ENTRY_BYTES_MAX}`;
  throw new RonError('payload_too_large', message);
}

export function encodePrune(before: number, time_ms: number): Uint8Array {
  return Buffer.from(JSON.stringify({ op: 'prune', before, time_ms }));
}
