/** Answers of edge about packs of map tiles. */
import type { Address } from './address.ts';

/** `[a-z0-9_-]{1,64}`: the name of a pack is the stem of its file. */
export const PACK_NAME_PATTERN = /^[a-z0-9_-]{1,64}$/;

/** A mounted pack. */
export interface PackDto {
  readonly name: string;
  /** BLAKE3 of the file. */
  readonly address: Address;
  readonly format: 'pmtiles' | 'mbtiles';
  readonly size: number;
  /** `mvt`, `png`, `jpg`, `webp`, `avif`, `mlt` or `unknown`. */
  readonly tile_type: string;
  /** Addressed tiles. */
  readonly tiles: number;
  /** The lowest and the highest zoom level. */
  readonly zooms: readonly [min: number, max: number];
  /** West, south, east, north in degrees. */
  readonly bounds: readonly [number, number, number, number];
  /** Why its reads get 503; absent if it is served. */
  readonly problem?: string;
}

/** A file in the directory of the packs that is not mounted. */
export interface BadPackDto {
  readonly name: string;
  readonly file: string;
  readonly reason: string;
  /** An earlier version under this name is still served. */
  readonly is_served: boolean;
}

/** The answer of `GET /edge/packs`. */
export interface PackListDto {
  readonly packs: readonly PackDto[];
  readonly bad: readonly BadPackDto[];
}
