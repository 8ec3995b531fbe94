/**
 * Immutable files of a tree (C2SP tlog-tiles): tiles of 256 hashes for every eighth level, and bundles of 256 entries.
 *
 *     tile/0/x001/234           the leaf hashes 1234*256 ... 1234*256+255
 *     tile/1/004.p/210          the first 210 hashes of a partial tile, each over a full tile below
 *     tile/entries/x001/234     the entries, each preceded by its length as a big-endian u16
 *
 * Contract: `parseTilePath` accepts exactly the paths that `tilePath` makes, so a resource has one name and no path escapes
 * the directory. Bound: an entry has at most 65 535 bytes.
 */
import { assert } from '@ron/kernel';
import { HASH_BYTES } from '../tree/hash.ts';

/** Levels of the tree that one tile spans. */
export const TILE_HEIGHT = 8;
export const TILE_WIDTH = 2 ** TILE_HEIGHT;
/** Entries of a full bundle. */
export const BUNDLE_ENTRIES = TILE_WIDTH;
export const TILE_BYTES = TILE_WIDTH * HASH_BYTES;
export const ENTRY_BYTES_MAX = 65_535;
/** The levels of a tree of 2^53 leaves. */
export const LEVELS_MAX = 7;
export const LENGTH_BYTES = 2;

export interface Tile {
  readonly level: number | 'entries';
  readonly index: number;
  /** 256 for a full tile, less for a partial one. */
  readonly width: number;
}

/** The number of hashes (or entries) in all tiles of a level, for a tree of `size` leaves. */
export function hashesAt(level: number | 'entries', size: number): number {
  return level === 'entries' ? size : Math.floor(size / TILE_WIDTH ** level);
}

/** The width of a tile in a tree of `size` leaves; 0 if the tile does not exist. */
export function widthAt(level: number | 'entries', index: number, size: number): number {
  return Math.min(Math.max(hashesAt(level, size) - index * TILE_WIDTH, 0), TILE_WIDTH);
}

export function tilePath({ level, index, width }: Tile): string {
  assert(width >= 1 && width <= TILE_WIDTH, 'a tile has 1 to 256 hashes');
  const digits = String(index);
  const groups = digits.padStart(Math.ceil(digits.length / 3) * 3, '0').match(/.{3}/g)!;
  const number = groups.map((group, at) => (at === groups.length - 1 ? group : `x${group}`)).join('/');
  return `tile/${level}/${number}${width === TILE_WIDTH ? '' : `.p/${width}`}`;
}

const PATH = /^tile\/(entries|\d{1,2})\/((?:x\d{3}\/){0,5}\d{3})(?:\.p\/(\d{1,3}))?$/;

/** Parses a canonical path; undefined for any other text. */
export function parseTilePath(path: string): Tile | undefined {
  const [, level, number, width] = PATH.exec(path) ?? [];
  if (level === undefined || number === undefined) return undefined;
  const tile: Tile = {
    level: level === 'entries' ? level : Number(level),
    index: Number(number.replaceAll(/[x/]/g, '')),
    width: width === undefined ? TILE_WIDTH : Number(width),
  };
  if (!Number.isSafeInteger(tile.index) || tile.width < 1 || tile.width > TILE_WIDTH) return undefined;
  return tilePath(tile) === path ? tile : undefined;
}

/** Encodes entries as a bundle. */
export function encodeBundle(entries: readonly Uint8Array[]): Buffer {
  const bytes = Buffer.allocUnsafe(entries.reduce((sum, entry) => sum + LENGTH_BYTES + entry.length, 0));
  let at = 0;
  for (const entry of entries) {
    assert(entry.length <= ENTRY_BYTES_MAX, 'an entry has at most 65535 bytes');
    at = bytes.writeUInt16BE(entry.length, at);
    bytes.set(entry, at);
    at += entry.length;
  }
  return bytes;
}

/** Decodes a bundle; undefined if its last entry is incomplete. */
export function decodeBundle(bytes: Uint8Array): Uint8Array[] | undefined {
  const entries: Uint8Array[] = [];
  let at = 0;
  while (at < bytes.length) {
    const start = at + LENGTH_BYTES;
    if (start > bytes.length) return undefined;
    const end = start + (bytes[at] as number) * 256 + (bytes[at + 1] as number);
    if (end > bytes.length) return undefined;
    entries.push(bytes.subarray(start, end));
    at = end;
  }
  return entries;
}
