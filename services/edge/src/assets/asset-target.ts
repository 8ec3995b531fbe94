/**
 * The asset that a path below `/edge/assets/` names.
 *
 * Contract: `path` is decoded once, without empty and dot segments: the listener refuses others. Each tile has one place:
 * numbers without leading zeros, lower case. Only the file of a pack has a query, for proofs. Throws `not_found` for a path that
 * can name no asset, `bad_request` for a malformed address or host, `validation` for other queries.
 */
import { RonError } from '@ron/kernel';
import { checkAddress, PACK_NAME_PATTERN, type Address } from '@ron/proto';
import type { Missing } from '../fill/fills.ts';
import type { AssetKey } from './asset-key.ts';

export type AssetTarget =
  | { readonly kind: 'tile'; readonly pack: string; readonly place: TilePlace; readonly ext: string }
  | { readonly kind: 'tilejson'; readonly pack: string }
  | { readonly kind: 'pack_file'; readonly pack: string; readonly proof: ProofRange | undefined }
  | { readonly kind: 'fetched'; readonly missing: Missing };

export interface TilePlace {
  readonly z: number;
  readonly x: number;
  readonly y: number;
}

/** The bytes that a proof covers. Without a length: up to the end of the file. */
export interface ProofRange {
  readonly offset: number;
  readonly length: number | undefined;
}

export type Query = Readonly<Record<string, string>>;

/** Parses a path below `live/`. */
export type ParseLive = (path: string, query: Query) => Missing;

/** Without `^` and `$`. */
const NAME = PACK_NAME_PATTERN.source.slice(1, -1);
const NUMBER = '(0|[1-9][0-9]{0,9})';
const TILE = new RegExp(`^(${NAME})/${NUMBER}/${NUMBER}/${NUMBER}\\.([a-z]{1,8})$`);
const TILEJSON = new RegExp(`^(${NAME})\\.json$`);
const PACK_FILE = new RegExp(`^(${NAME})\\.pmtiles$`);
const PACK = 'pack/';
const OBJECT = 'o/';
const LIVE = 'live/';

export function parseAsset(path: string, query: Query, parseLive: ParseLive): AssetTarget {
  if (path.startsWith(PACK)) return packAsset(path.slice(PACK.length), query);
  if (path.startsWith(OBJECT)) return objectAsset(path.slice(OBJECT.length), query);
  if (path.startsWith(LIVE)) return { kind: 'fetched', missing: parseLive(path.slice(LIVE.length), query) };
  throw noSuchAsset();
}

/** The same for a tile, from a key: undefined for every other asset. */
export function tileIn(key: AssetKey): Extract<AssetTarget, { kind: 'tile' }> | undefined {
  const found = key.startsWith(PACK) ? TILE.exec(key.slice(PACK.length)) : null;
  if (found === null) return undefined;
  const [, pack, z, x, y, ext] = found;
  return { kind: 'tile', pack: pack!, place: { z: Number(z), x: Number(x), y: Number(y) }, ext: ext! };
}

/** The address of an object, for capabilities that are limited to addresses. */
export function addressIn(path: string): string | undefined {
  return path.startsWith(OBJECT) ? path.slice(OBJECT.length) : undefined;
}

export const tileKey = (pack: string, { z, x, y }: TilePlace, ext: string): AssetKey =>
  `${PACK}${pack}/${z}/${x}/${y}.${ext}`;

function packAsset(path: string, query: Query): AssetTarget {
  const tile = tileIn(`${PACK}${path}`);
  if (tile !== undefined) {
    refuseQuery(query, []);
    return tile;
  }
  const [, described] = TILEJSON.exec(path) ?? [];
  if (described !== undefined) {
    refuseQuery(query, []);
    return { kind: 'tilejson', pack: described };
  }
  const [, pack] = PACK_FILE.exec(path) ?? [];
  if (pack === undefined) throw noSuchAsset();
  return { kind: 'pack_file', pack, proof: proofIn(query) };
}

function objectAsset(text: string, query: Query): AssetTarget {
  refuseQuery(query, []);
  const key: AssetKey = `${OBJECT}${addressFrom(text)}`;
  return { kind: 'fetched', missing: { kind: 'object', key } };
}

function addressFrom(text: string): Address {
  const result = checkAddress(text);
  if (!result.ok) throw new RonError('bad_request', result.problem);
  return result.address;
}

function proofIn(query: Query): ProofRange | undefined {
  refuseQuery(query, ['proof', 'offset', 'length']);
  const { proof, offset, length } = query;
  if (proof === undefined) {
    if (offset === undefined && length === undefined) return undefined;
    throw new RonError('bad_request', 'offset and length belong to proof=bao; for plain bytes use the Range header');
  }
  if (proof !== 'bao') throw new RonError('validation', 'the only proof is bao');
  return {
    offset: offset === undefined ? 0 : bytesFrom('offset', offset),
    length: length === undefined ? undefined : bytesFrom('length', length),
  };
}

function bytesFrom(name: string, text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new RonError('validation', `${name} is a number of bytes`);
  return Number(text);
}

function refuseQuery(query: Query, known: readonly string[]): void {
  for (const name in query)
    if (!known.includes(name)) throw new RonError('validation', 'the query has an unknown parameter');
}

const noSuchAsset = (): RonError => new RonError('not_found', 'no asset has this path');
