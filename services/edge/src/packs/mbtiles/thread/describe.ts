/**
 * Describes a pack: the fields of its metadata, and the others derived from its tiles.
 *
 * Contract: every tile lies within the grid of its zoom level, or the pack is refused. Counts all tiles in one pass over an
 * index, a column at a time where the index permits it, so that the thread can be ended between two columns.
 * Bound: one group or one row in memory.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import type { DatabaseSync } from 'node:sqlite';
import type { TileType } from '../../pack.ts';
import type { Description } from './calls.ts';
import { refused } from './errors.ts';
import { readMetadata, ZOOM_MAX } from './metadata.ts';
import type { OpenDatabase } from './open-database.ts';
import { isPlainScan, type UniqueKeys } from './query-plan.ts';

const BY_COLUMN =
  'SELECT zoom_level AS zoom, tile_column AS x, count(*) AS tiles, min(tile_row) AS low, max(tile_row) AS high FROM tiles GROUP BY zoom_level, tile_column';
const EACH = 'SELECT zoom_level AS zoom, tile_column AS x, 1 AS tiles, tile_row AS low, tile_row AS high FROM tiles';
const FIRST = 'SELECT CAST(tile_data AS BLOB) AS tile FROM tiles LIMIT 1';

/** The part of the grid that tiles of one zoom level cover. Rows count from the south. */
interface Extent {
  x_min: number;
  x_max: number;
  row_min: number;
  row_max: number;
}

interface Census {
  readonly tiles: number;
  readonly extents: ReadonlyMap<number, Extent>;
}

export function describe({ db, keys }: OpenDatabase): Description {
  const { kept, tile_type, zooms, bounds, center } = readMetadata(db, keys);
  const census = countTiles(db, keys);
  return {
    tiles: census.tiles,
    zooms: zooms ?? zoomsOf(census),
    bounds: bounds ?? boundsOf(census),
    center,
    tile_type: tile_type ?? typeOf(firstTile(db, keys)),
    metadata: kept,
  };
}

function countTiles(db: DatabaseSync, keys: UniqueKeys): Census {
  const query = [BY_COLUMN, EACH].find((sql) => isPlainScan(db, sql, keys));
  if (query === undefined) throw refused('its tiles cannot be counted in one scan of a table');
  const extents = new Map<number, Extent>();
  let tiles = 0;
  for (const row of db.prepare(query).iterate()) {
    const group = row as Record<'zoom' | 'x' | 'tiles' | 'low' | 'high', unknown>;
    requireInGrid(group.zoom, group.x, group.low);
    requireInGrid(group.zoom, group.x, group.high);
    const { zoom, x, low, high } = group as Record<'zoom' | 'x' | 'low' | 'high', number>;
    tiles += Number(group.tiles);
    const extent = extents.get(zoom) ?? { x_min: x, x_max: x, row_min: low, row_max: high };
    extents.set(zoom, {
      x_min: Math.min(extent.x_min, x),
      x_max: Math.max(extent.x_max, x),
      row_min: Math.min(extent.row_min, low),
      row_max: Math.max(extent.row_max, high),
    });
  }
  if (tiles === 0) throw refused('it has no tiles');
  return { tiles, extents };
}

function requireInGrid(zoom: unknown, x: unknown, row: unknown): void {
  const isZoom = isIndex(zoom, ZOOM_MAX + 1);
  if (isZoom && isIndex(x, 2 ** zoom) && isIndex(row, 2 ** zoom)) return;
  const shown = [zoom, x, row].map((value) => String(value).slice(0, 20)).join(', ');
  throw refused(`a tile is outside of the grid: zoom level, column and row are ${shown}`);
}

const isIndex = (value: unknown, count: number): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) < count;

function zoomsOf({ extents }: Census): Description['zooms'] {
  return [Math.min(...extents.keys()), Math.max(...extents.keys())];
}

/** The area of the tiles at the highest zoom level. */
function boundsOf({ extents }: Census): Description['bounds'] {
  const zoom = Math.max(...extents.keys());
  const { x_min, x_max, row_min, row_max } = extents.get(zoom)!;
  const count = 2 ** zoom;
  return [
    (x_min / count) * 360 - 180,
    latitudeOf(row_min / count),
    ((x_max + 1) / count) * 360 - 180,
    latitudeOf((row_max + 1) / count),
  ];
}

/** Of a height in the square of the Mercator projection: 0 is the south. */
function latitudeOf(height: number): number {
  return (Math.atan(Math.sinh(Math.PI * (2 * height - 1))) * 180) / Math.PI;
}

function firstTile(db: DatabaseSync, keys: UniqueKeys): Uint8Array {
  if (!isPlainScan(db, FIRST, keys)) throw refused('its tiles cannot be read in one scan of a table');
  const row = db.prepare(FIRST).get() as { tile: Uint8Array | null } | undefined;
  return row?.tile ?? new Uint8Array(0);
}

/** By the first bytes of a tile. Vector tiles are compressed, or begin with a layer (field 3). */
function typeOf(tile: Uint8Array): TileType {
  const head = Buffer.from(tile.buffer, tile.byteOffset, Math.min(tile.length, 12)).toString('latin1');
  if (head.startsWith('\x89PNG')) return 'png';
  if (head.startsWith('\xff\xd8\xff')) return 'jpg';
  if (head.startsWith('RIFF') && head.endsWith('WEBP')) return 'webp';
  if (head.slice(4) === 'ftypavif') return 'avif';
  return head.startsWith('\x1f\x8b') || head.startsWith('\x1a') ? 'mvt' : 'unknown';
}
