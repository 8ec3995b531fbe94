/** TileJSON 3.0.0 of a pack. */
import type { PackInfo } from '../packs/pack.ts';
import { canonicalExt } from './tile-answer.ts';

/** The members of the metadata that TileJSON defines, and their types. */
const TEXTS = ['name', 'description', 'attribution', 'version', 'legend'] as const;

/** `base`: the URL of the service, without a slash at the end. */
export function tileJson(pack: string, info: PackInfo, base: string): string {
  const { zooms, bounds, center, metadata, tile_type } = info;
  const texts = Object.fromEntries(
    TEXTS.flatMap((name) => (typeof metadata[name] === 'string' ? [[name, metadata[name]]] : [])),
  );
  const { vector_layers } = metadata;
  return JSON.stringify({
    tilejson: '3.0.0',
    tiles: [`${base}/edge/assets/pack/${pack}/{z}/{x}/{y}.${canonicalExt(tile_type)}`],
    name: pack,
    ...texts,
    scheme: 'xyz',
    minzoom: zooms[0],
    maxzoom: zooms[1],
    bounds,
    ...(center !== undefined && { center }),
    ...(Array.isArray(vector_layers) && { vector_layers }),
  });
}
