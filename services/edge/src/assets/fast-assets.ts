/**
 * Assets that are answered before routing: those in memory, and tiles of packs in the page cache.
 *
 * Contract: the same answers as the route gives. Keys have one spelling; other spellings go to the route.
 */
import type { FastEntry, FastSource } from '@ron/ingress';
import { hasAllowedQuery } from '../fill/live-path.ts';
import { AssetEntry } from './asset-entry.ts';
import { tileIn } from './asset-target.ts';
import type { HitTotals } from './hit-totals.ts';
import type { PackTiles } from './pack-tiles.ts';

export const ASSET_PREFIX = '/edge/assets/';
export const ASSET_PATH = `${ASSET_PREFIX}*`;

/** `query`: `fill.query` of the configuration in force. */
export function fastAssets(tiles: PackTiles, hits: HitTotals, query: () => readonly string[]): FastSource {
  const keyIn = (target: string): string | undefined =>
    target.startsWith(ASSET_PREFIX) ? target.slice(ASSET_PREFIX.length) : undefined;
  return {
    route: `GET ${ASSET_PATH}`,
    lookup: (target) => {
      const key = keyIn(target);
      const found = key === undefined ? undefined : tiles.cached(key);
      return found?.isFresh === true && hasAllowedQuery(key!, query()) ? found : undefined;
    },
    openNow: (target) => {
      const tile = tileIn(keyIn(target) ?? '');
      return tile && tiles.now(tile);
    },
    served: (entry: FastEntry) => {
      if (entry instanceof AssetEntry) hits.count(entry.tier);
    },
  };
}
