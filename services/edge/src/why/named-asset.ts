/**
 * Parses the name of an asset that an operator writes: its path below `/edge/assets/`, as in a URL.
 *
 *     live/tiles.example.org/a%20b.png?size=2
 *     /edge/assets/pack/planet/3/4/2.png
 *
 * Contract: the spellings that a request may have name the same asset here; all others are refused, as the listener refuses
 * them. Characters that a URL must encode may be written as they are, because clients encode them.
 * Throws `bad_path`, `bad_request`, `validation` or `not_found`.
 */
import { pathGuard } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { parseAsset, type AssetTarget, type Query } from '../assets/asset-target.ts';
import { ASSET_PREFIX } from '../assets/fast-assets.ts';
import { parseLive } from '../fill/live-path.ts';

export const PATH_CHARS_MAX = 8192;

const checkTarget = pathGuard();

/** `allowed`: `fill.query`. */
export function namedAsset(text: string, allowed: readonly string[]): AssetTarget {
  const target = encoded(text.startsWith(ASSET_PREFIX) ? text : ASSET_PREFIX + text);
  const refusal = checkTarget(target);
  if (refusal !== undefined) throw refusal;
  const mark = target.indexOf('?');
  const path = decodeURIComponent(target.slice(ASSET_PREFIX.length, mark < 0 ? undefined : mark));
  return parseAsset(path, queryIn(mark < 0 ? '' : target.slice(mark)), (live, given) =>
    parseLive(live, given, allowed),
  );
}

function encoded(text: string): string {
  if (!text.isWellFormed()) throw new RonError('bad_request', 'the path is not valid Unicode');
  return text.replace(/[^!-~]+/g, encodeURIComponent);
}

function queryIn(text: string): Query {
  const parameters = [...new URLSearchParams(text)];
  const query = Object.fromEntries(parameters);
  if (Object.keys(query).length === parameters.length) return query;
  throw new RonError('validation', 'the query repeats a key');
}
