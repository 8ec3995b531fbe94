/**
 * Parses the name of an asset that an operator writes: its path below `/edge/assets/`, as in a URL.
 *
 *     live/tiles.example.org/a%20b.png?size=2
 *     /edge/assets/pack/planet/3/4/2.png
 *
 * Contract: the same spellings as in a request name the same asset. Throws `bad_request` or `not_found` as a request does.
 */
import { RonError } from '@ron/kernel';
import { parseAsset, type AssetTarget } from '../assets/asset-target.ts';
import { ASSET_PREFIX } from '../assets/fast-assets.ts';
import { parseLive } from '../fill/live-path.ts';

export const PATH_CHARS_MAX = 8192;

/** `allowed`: `fill.query`. */
export function namedAsset(text: string, allowed: readonly string[]): AssetTarget {
  const below = text.startsWith(ASSET_PREFIX) ? text.slice(ASSET_PREFIX.length) : text;
  const mark = below.indexOf('?');
  const path = decoded(mark < 0 ? below : below.slice(0, mark));
  const query = Object.fromEntries(new URLSearchParams(mark < 0 ? '' : below.slice(mark)));
  return parseAsset(path, query, (live, given) => parseLive(live, given, allowed));
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    throw new RonError('bad_request', 'the path has an invalid percent-encoding');
  }
}
