/**
 * The table `metadata` of a pack.
 *
 * Contract: a missing table is an empty one; a table that cannot be read in one plain scan is refused. Values that do not fit
 * their field are ignored, because many tools write such: format, zooms and bounds are derived from the tiles then.
 * Bound: `METADATA_BYTES_MAX` of text, of which texts and layers within the limits of `vector-layers.ts` are kept.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import type { DatabaseSync } from 'node:sqlite';
import type { TileType } from '../../pack.ts';
import { isText, vectorLayers } from '../../vector-layers.ts';
import type { Description } from './calls.ts';
import { refused } from './errors.ts';
import { isPlainScan, type UniqueKeys } from './query-plan.ts';

const METADATA_BYTES_MAX = 10 * 1024 * 1024;
export const ZOOM_MAX = 30;
const LATITUDE_MAX = 90;
const LONGITUDE_MAX = 180;

const METADATA = 'SELECT CAST(name AS TEXT) AS name, CAST(value AS TEXT) AS value FROM metadata';
const KEPT = ['name', 'description', 'attribution', 'version'] as const;
const TYPES: ReadonlyMap<string, TileType> = new Map([
  ['pbf', 'mvt'],
  ['mvt', 'mvt'],
  ['application/vnd.mapbox-vector-tile', 'mvt'],
  ['png', 'png'],
  ['image/png', 'png'],
  ['jpg', 'jpg'],
  ['jpeg', 'jpg'],
  ['image/jpeg', 'jpg'],
  ['webp', 'webp'],
  ['image/webp', 'webp'],
  ['avif', 'avif'],
  ['image/avif', 'avif'],
  ['mlt', 'mlt'],
]);

/** The fields that the table has. */
export type Metadata = {
  readonly [F in 'tile_type' | 'zooms' | 'bounds' | 'center']?: Description[F];
} & { readonly kept: Readonly<Record<string, unknown>> };

export function readMetadata(db: DatabaseSync, keys: UniqueKeys): Metadata {
  const rows = readRows(db, keys);
  const kept: Record<string, unknown> = {};
  for (const field of KEPT) {
    const text = rows.get(field);
    if (isText(text)) kept[field] = text;
  }
  const layers = layersOf(rows.get('json'));
  if (layers !== undefined) kept['vector_layers'] = layers;
  const tile_type = TYPES.get(rows.get('format')?.toLowerCase() ?? '');
  const zooms = zoomsOf(rows.get('minzoom'), rows.get('maxzoom'));
  const bounds = boundsOf(rows.get('bounds'));
  const center = centerOf(rows.get('center'));
  return {
    kept,
    ...(tile_type && { tile_type }),
    ...(zooms && { zooms }),
    ...(bounds && { bounds }),
    ...(center && { center }),
  };
}

function readRows(db: DatabaseSync, keys: UniqueKeys): Map<string, string> {
  const rows = new Map<string, string>();
  if (!hasMetadata(db)) return rows;
  if (!isPlainScan(db, METADATA, keys)) throw refused('its metadata is not a plain table');
  let bytes = 0;
  for (const row of db.prepare(METADATA).iterate()) {
    const { name, value } = row as { name: string | null; value: string | null };
    bytes += (name ?? '').length + (value ?? '').length + 16;
    if (bytes > METADATA_BYTES_MAX) throw refused('its metadata is above 10 MiB');
    if (name !== null && value !== null) rows.set(name, value);
  }
  return rows;
}

function hasMetadata(db: DatabaseSync): boolean {
  const find = `SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name = 'metadata' COLLATE NOCASE`;
  return db.prepare(find).get() !== undefined;
}

function layersOf(json: string | undefined): readonly unknown[] | undefined {
  try {
    return vectorLayers((JSON.parse(json ?? '') as { vector_layers?: unknown } | null)?.vector_layers);
  } catch {
    return undefined;
  }
}

function zoomsOf(min: string | undefined, max: string | undefined): Description['zooms'] | undefined {
  const [low = -1, high = -1] = [min, max].map((text) => (/^\d{1,2}$/.test(text ?? '') ? Number(text) : -1));
  return low >= 0 && low <= high && high <= ZOOM_MAX ? [low, high] : undefined;
}

/** `text` as `count` numbers; undefined if it is not. */
function numbersOf(text: string | undefined, count: number): number[] | undefined {
  const parts = (text ?? '').split(',');
  if (parts.length !== count || parts.some((part) => part.trim() === '')) return undefined;
  const numbers = parts.map(Number);
  return numbers.every(Number.isFinite) ? numbers : undefined;
}

function boundsOf(text: string | undefined): Description['bounds'] | undefined {
  const numbers = numbersOf(text, 4);
  if (numbers === undefined) return undefined;
  const [west = 0, south = 0, east = 0, north = 0] = numbers;
  const isValid = isPlace(west, south) && isPlace(east, north) && west <= east && south <= north;
  return isValid ? [west, south, east, north] : undefined;
}

function centerOf(text: string | undefined): Description['center'] {
  const numbers = numbersOf(text, 3);
  if (numbers === undefined) return undefined;
  const [longitude = 0, latitude = 0, zoom = 0] = numbers;
  return isPlace(longitude, latitude) && zoom >= 0 && zoom <= ZOOM_MAX ? [longitude, latitude, zoom] : undefined;
}

const isPlace = (longitude: number, latitude: number): boolean =>
  Math.abs(longitude) <= LONGITUDE_MAX && Math.abs(latitude) <= LATITUDE_MAX;
