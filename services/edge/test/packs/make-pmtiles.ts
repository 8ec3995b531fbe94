/** Makes PMTiles v3 files for tests: all tile types and compressions, leaves, runs, clustered or not. */
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { tileId } from './hilbert.ts';

export const CODECS = ['none', 'gzip', 'br', 'zstd'] as const;
export const TYPES = ['unknown', 'mvt', 'png', 'jpg', 'webp', 'avif', 'mlt'] as const;
export type Codec = (typeof CODECS)[number];

export interface TestTile {
  readonly z: number;
  readonly x: number;
  readonly y: number;
  /** Before compression. */
  readonly bytes: Uint8Array;
}

export interface MakeInit {
  readonly tiles: readonly TestTile[];
  readonly type?: (typeof TYPES)[number];
  readonly tile_codec?: Codec;
  readonly directory_codec?: Codec;
  /** Entries of each directory below the root; without it the root has all. */
  readonly leaf_entries?: number;
  /** Levels of leaves. Default 1. */
  readonly levels?: number;
  /** Whether tile data is in the order of ids. Default true. */
  readonly clustered?: boolean;
  readonly zooms?: readonly [number, number];
  readonly metadata?: unknown;
  /** Replaces the numbers of the header. */
  readonly header?: Partial<HeaderNumbers>;
  /** Replaces the stored directories. */
  readonly directories?: { readonly root: Uint8Array; readonly leaves?: Uint8Array };
  /** Replaces the stored metadata. */
  readonly stored_metadata?: Uint8Array;
  /** Unused bytes before each section. */
  readonly gap?: number;
}

export interface HeaderNumbers {
  version: number;
  root_at: number;
  root_bytes: number;
  metadata_at: number;
  metadata_bytes: number;
  leaves_at: number;
  leaves_bytes: number;
  tiles_at: number;
  tiles_bytes: number;
  addressed: number;
  entries: number;
  contents: number;
  directory_codec: number;
  tile_codec: number;
  type: number;
  min_zoom: number;
  max_zoom: number;
}

export interface TestEntry {
  readonly id: number;
  /** 0: a leaf. */
  readonly run: number;
  readonly length: number;
  readonly offset: number;
}

const COMPRESS: Readonly<Record<Codec, (bytes: Uint8Array) => Uint8Array>> = {
  none: (bytes) => bytes,
  gzip: (bytes) => gzipSync(bytes),
  br: (bytes) => brotliCompressSync(bytes),
  zstd: (bytes) => zstdCompressSync(bytes),
};

export const compress = (bytes: Uint8Array, codec: Codec): Uint8Array => COMPRESS[codec](bytes);

export function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  return [...bytes, rest];
}

export function encodeDirectory(entries: readonly TestEntry[]): Uint8Array {
  const numbers = [entries.length];
  entries.forEach(({ id }, at) => numbers.push(id - (entries[at - 1]?.id ?? 0)));
  for (const { run } of entries) numbers.push(run);
  for (const { length } of entries) numbers.push(length);
  entries.forEach(({ offset }, at) => {
    const before = entries[at - 1];
    numbers.push(before !== undefined && before.offset + before.length === offset ? 0 : offset + 1);
  });
  return Uint8Array.from(numbers.flatMap(varint));
}

/** The entries of all tiles, and their data. */
function layTiles(init: MakeInit): { entries: TestEntry[]; data: Buffer; addressed: number; contents: number } {
  const { tiles, tile_codec = 'none', clustered = true } = init;
  const sorted = tiles.map((tile) => ({ id: tileId(tile.z, tile.x, tile.y), tile })).toSorted((a, b) => a.id - b.id);
  const places = new Map<string, { offset: number; length: number }>();
  const pieces: Uint8Array[] = [];
  let end = 0;
  for (const { tile } of clustered ? sorted : sorted.toReversed()) {
    const content = Buffer.from(tile.bytes).toString('latin1');
    if (places.has(content)) continue;
    const stored = compress(tile.bytes, tile_codec);
    places.set(content, { offset: end, length: stored.length });
    pieces.push(stored);
    end += stored.length;
  }
  const entries: TestEntry[] = [];
  for (const { id, tile } of sorted) {
    const place = places.get(Buffer.from(tile.bytes).toString('latin1'))!;
    const last = entries.at(-1);
    const continues = last?.offset === place.offset && last.id + last.run === id;
    if (continues) entries[entries.length - 1] = { ...last, run: last.run + 1 };
    else entries.push({ id, run: 1, ...place });
  }
  return { entries, data: Buffer.concat(pieces), addressed: sorted.length, contents: places.size };
}

function layDirectories(entries: readonly TestEntry[], init: MakeInit): { root: Uint8Array; leaves: Buffer } {
  const { leaf_entries = Infinity, directory_codec = 'none' } = init;
  const levels = init.leaf_entries === undefined ? 0 : (init.levels ?? 1);
  const leaves: Uint8Array[] = [];
  let end = 0;
  let level = entries;
  for (let depth = 0; depth < levels; depth++) {
    const above: TestEntry[] = [];
    for (let at = 0; at < level.length; at += leaf_entries) {
      const part = level.slice(at, at + leaf_entries);
      const stored = compress(encodeDirectory(part), directory_codec);
      above.push({ id: part[0]!.id, run: 0, length: stored.length, offset: end });
      leaves.push(stored);
      end += stored.length;
    }
    level = above;
  }
  return { root: compress(encodeDirectory(level), directory_codec), leaves: Buffer.concat(leaves) };
}

export function makePmtiles(init: MakeInit): Buffer {
  const { entries, data, addressed, contents } = layTiles(init);
  const { root, leaves = Buffer.alloc(0) } = init.directories ?? layDirectories(entries, init);
  const zooms = init.zooms ?? [Math.min(...init.tiles.map(({ z }) => z)), Math.max(...init.tiles.map(({ z }) => z))];
  const json = Buffer.from(JSON.stringify(init.metadata ?? { name: 'test' }));
  const metadata = init.stored_metadata ?? compress(json, init.directory_codec ?? 'none');
  const gap = Buffer.alloc(init.gap ?? 0, 0xee);
  const root_at = 127 + gap.length;
  const metadata_at = root_at + root.length + gap.length;
  const leaves_at = metadata_at + metadata.length + gap.length;
  const tiles_at = leaves_at + leaves.length + gap.length;
  const header = encodeHeader(
    {
      version: 3,
      root_at,
      root_bytes: root.length,
      metadata_at,
      metadata_bytes: metadata.length,
      leaves_at,
      leaves_bytes: leaves.length,
      tiles_at,
      tiles_bytes: data.length,
      addressed,
      entries: entries.length,
      contents,
      directory_codec: CODECS.indexOf(init.directory_codec ?? 'none') + 1,
      tile_codec: CODECS.indexOf(init.tile_codec ?? 'none') + 1,
      type: TYPES.indexOf(init.type ?? 'png'),
      min_zoom: zooms[0],
      max_zoom: zooms[1],
      ...init.header,
    },
    init.clustered ?? true,
  );
  return Buffer.concat([header, gap, root, gap, metadata, gap, leaves, gap, data]);
}

function encodeHeader(numbers: HeaderNumbers, clustered: boolean): Buffer {
  const header = Buffer.alloc(127);
  header.write('PMTiles', 'latin1');
  header[7] = numbers.version;
  const wide = [
    numbers.root_at,
    numbers.root_bytes,
    numbers.metadata_at,
    numbers.metadata_bytes,
    numbers.leaves_at,
    numbers.leaves_bytes,
    numbers.tiles_at,
    numbers.tiles_bytes,
    numbers.addressed,
    numbers.entries,
    numbers.contents,
  ];
  wide.forEach((value, at) => header.writeBigUInt64LE(BigInt(value), 8 + at * 8));
  header[96] = clustered ? 1 : 0;
  header[97] = numbers.directory_codec;
  header[98] = numbers.tile_codec;
  header[99] = numbers.type;
  header[100] = numbers.min_zoom;
  header[101] = numbers.max_zoom;
  [-180, -85, 180, 85].forEach((degrees, at) => header.writeInt32LE(degrees * 1e7, 102 + at * 4));
  header[118] = numbers.min_zoom;
  header.writeInt32LE(10 * 1e7, 119);
  header.writeInt32LE(50 * 1e7, 123);
  return header;
}
