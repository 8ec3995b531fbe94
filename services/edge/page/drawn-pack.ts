/** The style, bounds and zooms with which a pack is drawn. */
import type { SourceSpecification, StyleSpecification } from 'maplibre-gl';
import { TileType, type PMTiles } from 'pmtiles';
import { safeAttribution } from './attribution.ts';
import { vectorLayers } from './vector-layers.ts';

export interface DrawnPack {
  readonly style: StyleSpecification;
  /** West, south, east, north. */
  readonly bounds: [number, number, number, number];
  readonly zoom_max: number;
}

/** The members of TileJSON that the page uses. */
interface TileJson {
  readonly tiles: string[];
  readonly minzoom: number;
  readonly maxzoom: number;
  readonly bounds: [number, number, number, number];
  readonly attribution?: unknown;
  readonly vector_layers?: readonly { readonly id: string }[];
}

/** Beyond these latitudes the projection of web maps ends. */
const LATITUDE_MAX = 85;

/** A pack that the page reads itself. */
export async function byProtocol(archive: PMTiles): Promise<DrawnPack> {
  const { tileType, minLon, minLat, maxLon, maxLat, maxZoom } = await archive.getHeader();
  const metadata = (await archive.getMetadata()) as Partial<TileJson> | undefined;
  const isVector = tileType === TileType.Mvt || tileType === TileType.Mlt;
  const url = `pmtiles://${archive.source.getKey()}`;
  const shared = { url, ...attributed(metadata?.attribution) };
  const source: SourceSpecification = isVector
    ? { type: 'vector', ...shared, ...(tileType === TileType.Mlt && { encoding: 'mlt' as const }) }
    : { type: 'raster', ...shared, tileSize: 256 };
  return drawn(source, metadata?.vector_layers ?? [], [minLon, minLat, maxLon, maxLat], maxZoom);
}

/** A pack whose tiles the server reads. */
export async function byServer(name: string): Promise<DrawnPack> {
  const response = await fetch(new URL(`../assets/pack/${name}.json`, location.href));
  if (!response.ok) throw new Error(`the server answered ${response.status} for the description of the pack`);
  const { tiles, minzoom, maxzoom, bounds, attribution, vector_layers } = (await response.json()) as TileJson;
  const extension = /\.([a-z]+)$/.exec(tiles[0] ?? '')?.[1];
  if (extension === undefined) throw new Error('the description of the pack has no URL of tiles');
  const shared = {
    // On this server: the host in the description may be another name of it.
    tiles: [`${new URL(`../assets/pack/${name}/`, location.href).href}{z}/{x}/{y}.${extension}`],
    minzoom,
    maxzoom,
    ...attributed(attribution),
  };
  const source: SourceSpecification = ['mvt', 'pbf', 'mlt'].includes(extension)
    ? { type: 'vector', ...shared, ...(extension === 'mlt' && { encoding: 'mlt' as const }) }
    : { type: 'raster', ...shared, tileSize: 256 };
  return drawn(source, vector_layers ?? [], bounds, maxzoom);
}

function attributed(html: unknown): { attribution?: string } {
  const attribution = safeAttribution(html);
  return attribution === undefined ? {} : { attribution };
}

function drawn(
  source: SourceSpecification,
  layers: readonly { readonly id: string }[],
  [west, south, east, north]: DrawnPack['bounds'],
  zoom_max: number,
): DrawnPack {
  const style: StyleSpecification = {
    version: 8,
    sources: { pack: source },
    layers: [
      { id: 'background', type: 'background', paint: { 'background-color': '#f4f3ef' } },
      ...(source.type === 'vector'
        ? vectorLayers(layers.map(({ id }) => id))
        : [{ id: 'pack', type: 'raster' as const, source: 'pack' }]),
    ],
  };
  const bounds: DrawnPack['bounds'] = [west, Math.max(south, -LATITUDE_MAX), east, Math.min(north, LATITUDE_MAX)];
  return { style, bounds, zoom_max };
}
