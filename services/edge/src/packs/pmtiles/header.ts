/** The header of a PMTiles v3 file: parsed by `pmtiles`, then checked against the file that it describes. */
import { bytesToHeader, Compression, TileType as Type, type Header } from 'pmtiles';
import { RonError } from '@ron/kernel/core';
import type { TileEncoding, TileType } from '../pack.ts';

export const HEADER_BYTES = 127;
/** The header and the root directory lie within these bytes, so that one read fetches both. */
const ROOT_END_MAX = 16_384;
/** Ids of tiles of higher zoom levels are not safe integers. */
const ZOOM_MAX = 26;
const VERSION = 3;
const MAGIC = 'PMTiles';

/** A range of the file. */
export interface Section {
  readonly offset: number;
  readonly length: number;
}

/** How directories and metadata, or tiles, are compressed. */
export type Codec = 'none' | TileEncoding;

export interface PmtilesHeader {
  readonly root: Section;
  readonly metadata: Section;
  readonly leaves: Section;
  readonly tiles: Section;
  /** Counts as the header states them; 0: not stated. */
  readonly counts: { readonly addressed: number; readonly entries: number; readonly contents: number };
  readonly directory_codec: Codec;
  /** Undefined: not compressed, or in a way that the header does not state. */
  readonly tile_encoding: TileEncoding | undefined;
  readonly tile_type: TileType;
  readonly zooms: readonly [min: number, max: number];
  readonly bounds: readonly [number, number, number, number];
  readonly center: readonly [number, number, number];
}

const UNKNOWN: number = Compression.Unknown;

const CODECS: Readonly<Record<number, Codec>> = {
  [Compression.None]: 'none',
  [Compression.Gzip]: 'gzip',
  [Compression.Brotli]: 'br',
  [Compression.Zstd]: 'zstd',
};

const TYPES: Readonly<Record<number, TileType>> = {
  [Type.Unknown]: 'unknown',
  [Type.Mvt]: 'mvt',
  [Type.Png]: 'png',
  [Type.Jpeg]: 'jpg',
  [Type.Webp]: 'webp',
  [Type.Avif]: 'avif',
  [Type.Mlt]: 'mlt',
};

const invalid = (problem: string): RonError => new RonError('validation', problem);

/** Throws `validation` with the reason if the header is wrong. `bytes`: the start of the file, `size`: its length. */
export function readHeader(bytes: Uint8Array, size: number): PmtilesHeader {
  requireMagic(bytes);
  const header = bytesToHeader(Uint8Array.from(bytes.subarray(0, HEADER_BYTES)).buffer);
  const sections = sectionsOf(header);
  requireSections(sections, size);
  const { minZoom, maxZoom } = header;
  if (minZoom > maxZoom || maxZoom > ZOOM_MAX) {
    throw invalid(`the zoom levels are ${minZoom} to ${maxZoom}, expected an ascending pair up to ${ZOOM_MAX}`);
  }
  return {
    ...sections,
    counts: {
      addressed: header.numAddressedTiles,
      entries: header.numTileEntries,
      contents: header.numTileContents,
    },
    directory_codec: codecOf(header.internalCompression, 'directories'),
    tile_encoding: tileEncoding(header.tileCompression),
    tile_type: typeOf(header.tileType),
    zooms: [minZoom, maxZoom],
    bounds: [longitude(header.minLon), latitude(header.minLat), longitude(header.maxLon), latitude(header.maxLat)],
    center: [longitude(header.centerLon), latitude(header.centerLat), header.centerZoom],
  };
}

function requireMagic(bytes: Uint8Array): void {
  if (bytes.length < HEADER_BYTES)
    throw invalid(`the file has fewer than the ${HEADER_BYTES} bytes of a PMTiles header`);
  if (Buffer.from(bytes.subarray(0, MAGIC.length)).toString('latin1') !== MAGIC) {
    throw invalid('the file does not begin with the magic bytes of PMTiles');
  }
  if (bytes[MAGIC.length] !== VERSION)
    throw invalid(`the PMTiles version is ${bytes[MAGIC.length]}, expected ${VERSION}`);
}

type Sections = Pick<PmtilesHeader, 'root' | 'metadata' | 'leaves' | 'tiles'>;

function sectionsOf(header: Header): Sections {
  return {
    root: { offset: header.rootDirectoryOffset, length: header.rootDirectoryLength },
    metadata: { offset: header.jsonMetadataOffset, length: header.jsonMetadataLength },
    leaves: { offset: header.leafDirectoryOffset, length: header.leafDirectoryLength ?? 0 },
    tiles: { offset: header.tileDataOffset, length: header.tileDataLength ?? 0 },
  };
}

function requireSections(sections: Sections, size: number): void {
  const { root } = sections;
  if (root.length === 0) throw invalid('the root directory is empty');
  if (root.offset + root.length > ROOT_END_MAX) {
    throw invalid(`the root directory does not lie within the first ${ROOT_END_MAX} bytes`);
  }
  let end = HEADER_BYTES;
  let before = 'header';
  const filled = Object.entries(sections).filter(([, { length }]) => length > 0);
  for (const [name, { offset, length }] of filled.toSorted(([, a], [, b]) => a.offset - b.offset)) {
    if (offset < end) throw invalid(`the section ${name} overlaps the section ${before}`);
    end = offset + length;
    before = name;
    if (end > size) throw invalid(`the section ${name} ends at byte ${end}, beyond the end of the file at ${size}`);
  }
}

function codecOf(compression: number, what: string): Codec {
  const codec = CODECS[compression];
  if (codec === undefined) throw invalid(`the compression ${compression} of ${what} is not supported`);
  return codec;
}

function tileEncoding(compression: number): TileEncoding | undefined {
  const codec = compression === UNKNOWN ? 'none' : codecOf(compression, 'tiles');
  return codec === 'none' ? undefined : codec;
}

function typeOf(type: number): TileType {
  const name = TYPES[type];
  if (name === undefined) throw invalid(`the tile type ${type} is not supported`);
  return name;
}

/** Writers round outwards, so slightly larger values are common. */
const clamp = (value: number, max: number): number => Math.min(max, Math.max(-max, value));
const longitude = (degrees: number): number => clamp(degrees, 180);
const latitude = (degrees: number): number => clamp(degrees, 90);
