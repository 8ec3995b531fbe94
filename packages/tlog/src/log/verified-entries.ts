/** The entries of a bundle, checked against their leaf hashes. */
import { HASH_BYTES, leafHash } from '../tree/hash.ts';
import { decodeBundle } from '../tiles/tiles.ts';
import { isSame } from '../tree/tree.ts';
import { damaged } from './log-files.ts';

/** Consecutive entries. */
export interface LogSlice {
  /** The index of the first of them. */
  readonly first: number;
  readonly entries: readonly Uint8Array[];
}

/** Throws `audit_integrity` unless `bundle` holds one entry for each hash in `leaves`. `first` is the index of its first entry. */
export function verifiedEntries(bundle: Uint8Array, leaves: Uint8Array, first: number): Uint8Array[] {
  const entries = decodeBundle(bundle) ?? [];
  for (let at = 0; at < leaves.length / HASH_BYTES; at++) {
    const entry = entries[at];
    const leaf = leaves.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES);
    if (entry !== undefined && isSame(leafHash(entry), leaf)) continue;
    throw damaged('entries', `entry ${first + at} does not match its leaf hash`);
  }
  return entries;
}
