/**
 * Assets of origins and objects of storage as answers: headers, `Age`, `Cache-Status`.
 *
 * Contract: an asset of an origin carries its `Cache-Control`; an object never changes. Both are sandboxed: browsers must not run
 * them in this origin. The bytes are those of the source, which verifies them.
 */
import { parseHttpDate, type ByteSource } from '@ron/ingress';
import { sched } from '@ron/kernel';
import type { RamAsset, RamLifetime } from '../cache/asset-cache.ts';
import { ramSource } from '../cache/asset-source.ts';
import type { AssetMeta } from '../cache/cached-asset.ts';
import { freshnessOf, type Freshness, type StaleRules } from '../fill/freshness/freshness.ts';
import { AssetEntry, costOf } from './asset-entry.ts';
import { addressIn } from './asset-target.ts';
import { hitStatus, type CacheStatus } from './cache-status.ts';

const OBJECT_HEADERS = {
  'Cache-Control': 'public, max-age=31536000, immutable',
  Vary: 'Accept-Encoding',
  'Content-Security-Policy': 'sandbox',
} as const;

/** `cache_status` states how the asset was found. */
export function fetchedSource(
  meta: AssetMeta,
  source: ByteSource,
  cache_status: CacheStatus,
  age_s: number,
): ByteSource {
  const { size, media_type, freshness } = meta;
  const last_modified_ms = freshness?.last_modified === undefined ? undefined : parseHttpDate(freshness.last_modified);
  return {
    size,
    etag: `"${meta.address}"`,
    media_type,
    headers: headersOf(meta),
    cache_status,
    ...(freshness !== undefined && { born_ms: sched.wall_ms() - age_s * 1000 }),
    ...(last_modified_ms !== undefined && { last_modified_ms }),
    ...(source.ram !== undefined && { ram: source.ram }),
    read: (start, end, signal) => source.read(start, end, signal),
  };
}

/** When the asset becomes stale (Unix ms); undefined for objects. */
export const expiresOf = ({ lifetime_s, age_s }: Freshness): number | undefined =>
  lifetime_s === Infinity ? undefined : sched.wall_ms() + (lifetime_s - age_s) * 1000;

export interface PreparedAsset {
  readonly asset: RamAsset;
  /** The memory that it takes. */
  readonly bytes: number;
  readonly lifetime: RamLifetime;
}

/** The asset as it is kept in memory: fresh for its lifetime, then stale until it is evicted. */
export function prepareAsset(meta: AssetMeta, body: Uint8Array, rules: StaleRules): PreparedAsset {
  const now_ms = sched.wall_ms();
  const freshness = freshnessOf(meta, rules, now_ms);
  const { fresh_ms, fresh_from_ms: from_ms } = freshness;
  const fresh = fresh_ms === Infinity ? undefined : { from_ms, until_ms: now_ms + fresh_ms };
  const bare = ramSource(meta, body);
  const source = fetchedSource(meta, bare, hitStatus('ram', expiresOf(freshness)), freshness.age_s);
  const address = addressIn(meta.key);
  const entry = new AssetEntry(
    { ...source, ram: bare.ram },
    'ram',
    address === undefined ? undefined : { address },
    fresh,
  );
  const lifetime = fresh === undefined ? {} : { ttl_ms: fresh_ms, stale_ms: Infinity };
  return { asset: { entry, meta, owner: undefined }, bytes: costOf(entry), lifetime };
}

function headersOf({ freshness }: AssetMeta): Readonly<Record<string, string>> {
  if (freshness === undefined) return OBJECT_HEADERS;
  const { cache_control, expires } = freshness;
  return {
    ...(cache_control !== undefined && { 'Cache-Control': cache_control }),
    ...(cache_control === undefined && expires !== undefined && { Expires: expires }),
    'Content-Security-Policy': OBJECT_HEADERS['Content-Security-Policy'],
  };
}
