/**
 * The entries of the fill log: JSON, one object per fill, the announcements of prunings, and the ends of outages.
 *
 *     {"op":"fill","key":"live/tiles.example.org/a.png","host":"tiles.example.org","dialled":"192.0.2.7:443",
 *      "certificate_key":"9f86...","etag":"\"abc\"","size":1024,"b3":"b3:6fcb...","time_ms":1763308800000}
 *
 * Bound: about 5 KiB, because a key has at most 4096 characters, a host 253 and an ETag 256.
 */
import type { Provenance } from '../cache/cached-asset.ts';

export function encodeFill(fill: Provenance): Uint8Array {
  const { key, host, dialled, certificate_key, etag = null, size, address: b3, time_ms } = fill;
  return Buffer.from(JSON.stringify({ op: 'fill', key, host, dialled, certificate_key, etag, size, b3, time_ms }));
}

export function encodePrune(before: number, time_ms: number): Uint8Array {
  return Buffer.from(JSON.stringify({ op: 'prune', before, time_ms }));
}

/** The first entry after appends have failed. */
export function encodeResume(time_ms: number): Uint8Array {
  return Buffer.from(JSON.stringify({ op: 'resume', time_ms }));
}
