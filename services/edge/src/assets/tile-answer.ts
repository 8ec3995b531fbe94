/**
 * Tiles of packs as answers: media type, content coding, entity tag.
 *
 * Contract: a stored coding is sent as it is to clients that accept it; for others the tile is decoded, within the limits of
 * decompression. The entity tag is the BLAKE3 of the bytes that are sent, so each coding has its own.
 * Bound: one decoded tile per request. Overflow: `decompress_cap`.
 */
import { Readable } from 'node:stream';
import { Blake3Hasher } from '@napi-rs/blake-hash';
import { decodeBody } from '@ron/http';
import { chooseVariant, CopiedBytes, type Batch } from '@ron/ingress';
import { isRonError, RonError } from '@ron/kernel';
import { ADDRESS_PREFIX } from '@ron/proto';
import { longStep } from '../long-steps.ts';
import type { Tile, TileType } from '../packs/pack.ts';
import type { AssetEntry } from './asset-entry.ts';
import { hitStatus, type HitTier } from './cache-status.ts';

export interface DecodeLimits {
  readonly ratio_max: number;
  readonly bytes_max: number;
}

const EXTENSIONS: Readonly<Record<TileType, readonly [canonical: string, ...others: string[]]>> = {
  mvt: ['mvt', 'pbf'],
  png: ['png'],
  jpg: ['jpg'],
  webp: ['webp'],
  avif: ['avif'],
  mlt: ['mlt'],
  unknown: ['bin'],
};

const MEDIA_TYPES: Readonly<Record<TileType, string>> = {
  mvt: 'application/vnd.mapbox-vector-tile',
  png: 'image/png',
  jpg: 'image/jpeg',
  webp: 'image/webp',
  avif: 'image/avif',
  mlt: 'application/vnd.maplibre-vector-tile',
  unknown: 'application/octet-stream',
};

export const TILE_HEADERS = { 'Cache-Control': 'max-age=60' } as const;
const VARYING_HEADERS = { ...TILE_HEADERS, Vary: 'Accept-Encoding' } as const;

/** The extension of the keys of such tiles. */
export const canonicalExt = (type: TileType): string => EXTENSIONS[type][0];

export const isExtOf = (type: TileType, ext: string): boolean => EXTENSIONS[type].includes(ext);

/** The tile as it is stored. `isOwn`: the bytes have memory of their own, which is not copied. */
export function storedTile({ bytes, encoding }: Tile, type: TileType, tier: HitTier, isOwn: boolean): CopiedBytes {
  return new CopiedBytes(bytes, {
    isHandedOver: isOwn,
    etag: etagOf(bytes),
    media_type: MEDIA_TYPES[type],
    headers: TILE_HEADERS,
    cache_status: hitStatus(tier),
    ...(encoding !== undefined && { encoding }),
  });
}

/** The same tile, found in another tier. It shares the memory of the bytes. */
export function inTier(tile: CopiedBytes, tier: HitTier): CopiedBytes {
  const { etag, media_type, headers, encoding } = tile;
  const cache_status = hitStatus(tier);
  return new CopiedBytes(tile, {
    etag,
    media_type,
    headers,
    cache_status,
    ...(encoding !== undefined && { encoding }),
  });
}

/** The tile without its coding, for a client that does not accept that; undefined if it can be sent as it is stored. */
export async function decodedTile(
  { source, tier }: AssetEntry,
  accept_encoding: string | undefined,
  limits: DecodeLimits,
  signal: AbortSignal,
): Promise<CopiedBytes | undefined> {
  const { encoding, media_type, ram } = source;
  if (encoding === undefined) return undefined;
  const chosen = chooseVariant<{ readonly encoding?: string }>([{ encoding }, {}], accept_encoding);
  if (chosen === undefined) throw new RonError('not_acceptable', `the tile has the codings ${encoding} and identity`);
  if (chosen.encoding !== undefined) return undefined;
  const chunks = await decode(ram, encoding, limits, signal);
  // [edge I-7] The decoded bytes may be 10 MiB.
  const decoded_bytes = chunks.reduce((sum, { length }) => sum + length, 0);
  return await longStep(decoded_bytes, signal, () => {
    const bytes = Buffer.concat(chunks);
    return new CopiedBytes(bytes, {
      isHandedOver: true,
      etag: etagOf(bytes),
      media_type,
      headers: VARYING_HEADERS,
      cache_status: hitStatus(tier),
    });
  });
}

/** Reused: a new one for each tile costs more than the hash of a small tile. */
const hasher = new Blake3Hasher();

function etagOf(bytes: Uint8Array): string {
  hasher.reset();
  hasher.update(bytes);
  return `"${ADDRESS_PREFIX}${hasher.digest()}"`;
}

/** [edge I-10] Decoded within a ratio and a size. */
async function decode(
  bytes: Batch,
  encoding: string,
  { ratio_max, bytes_max }: DecodeLimits,
  signal: AbortSignal,
): Promise<Uint8Array[]> {
  const chunks: Uint8Array[] = [];
  try {
    for await (const chunk of decodeBody(Readable.from(bytes), encoding, { ratio_max, bytes_max, signal }))
      chunks.push(chunk as Uint8Array);
  } catch (error) {
    // The guard blames the sender of the bytes, which is the pack here.
    if (!isRonError(error, 'bad_request')) throw error;
    throw new RonError('not_ready', `the pack has a tile that is not valid ${encoding}`, { cause: error });
  }
  return chunks;
}
