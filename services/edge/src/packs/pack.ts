/** An open pack of map tiles, as both formats offer it. */
import type { Batch } from '@ron/ingress';
import type { Address } from '@ron/proto';

export type PackFormat = 'pmtiles' | 'mbtiles';
export type TileType = 'mvt' | 'png' | 'jpg' | 'webp' | 'avif' | 'mlt' | 'unknown';
export type TileEncoding = 'gzip' | 'br' | 'zstd';

export interface PackInfo {
  readonly format: PackFormat;
  /** BLAKE3 of the file. */
  readonly address: Address;
  readonly size: number;
  /** Addressed tiles. */
  readonly tiles: number;
  /** The lowest and the highest zoom level. */
  readonly zooms: readonly [min: number, max: number];
  /** West, south, east, north in degrees. */
  readonly bounds: readonly [number, number, number, number];
  /** Longitude, latitude, zoom. */
  readonly center: readonly [number, number, number] | undefined;
  readonly tile_type: TileType;
  /** From the pack, bounded and checked: `name`, `description`, `attribution`, `version`, `vector_layers`. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** A tile as it is stored. */
export interface Tile {
  /** Valid until the next call of `tileNow`, or for good if it came from `tile`. */
  readonly bytes: Uint8Array;
  /** The content coding of the bytes; undefined if they are not compressed. */
  readonly encoding: TileEncoding | undefined;
}

/**
 * Contract: every byte of a PMTiles pack is verified by the BLAKE3 of its 64 KiB group. Of an MBTiles pack, each read compares
 * device, inode, size and mtime of the file only. After a mismatch every read throws `not_ready`, and `problem` explains it.
 * Coordinates are XYZ (rows from the north) in both formats.
 */
export interface OpenPack extends AsyncDisposable {
  readonly info: PackInfo;
  /** Why the pack is not served any more. */
  readonly problem: string | undefined;
  /** Whether z, x and y are within the zooms and the grid of the pack. */
  isInside(z: number, x: number, y: number): boolean;
  /** Undefined: no tile at this place. */
  tile(z: number, x: number, y: number, signal: AbortSignal): Promise<Tile | undefined>;
  /** The tile, if it can be read and verified without waiting for a disk; undefined does not mean absent. */
  tileNow?(z: number, x: number, y: number): Tile | undefined;
  /** Bytes of the file, verified, in batches of 64 KiB groups, cut by `start` and `end` only; only for PMTiles. */
  read?(start: number, end: number, signal: AbortSignal): AsyncIterable<Batch>;
  /** BLAKE3 values of the 64 KiB groups of the file; only for PMTiles. For proofs. */
  readonly groups?: GroupHashes;
  /** Called after the file was renamed, for packs that open it again by its path. */
  renamed?(path: string): void;
  close(): Promise<void>;
}

export interface OpenPackInit {
  readonly path: string;
  /** The file that keeps the hashes of a PMTiles pack. Undefined: nothing is written. */
  readonly sidecar: string | undefined;
  readonly expect: Address | undefined;
  /** Called once, when a read finds that the file is not the verified one. Then `problem` is set. */
  readonly onDamage: (problem: string) => void;
  readonly signal: AbortSignal;
}

/** Opens packs of one format, in threads of its own. */
export interface PackOpener extends AsyncDisposable {
  /**
   * Verifies and opens a file. The pack uses this file even if it is renamed later: hashes are bound to device, inode, size
   * and mtime, never to the path or to the ctime. Rejects with `validation` and the reason if the pack is bad, with
   * `address_mismatch` if it is not the expected one, and with the error of the disk.
   */
  open(init: OpenPackInit): Promise<OpenPack>;
}

/** The chaining values of the 64 KiB groups of a file; they combine to its address. */
export interface GroupHashes {
  readonly size: number;
  readonly count: number;
  /** 32 bytes for each group. */
  readonly values: Uint8Array;
  /** The chaining value over `count` groups from `first` on: a subtree, and not the whole. */
  value(first: number, count: number): Uint8Array;
}
