/** Fetches missing assets: coalesced by key, queued, retried, validated, stored. */
import type { Deadline } from '@ron/kernel';
import type { AssetKey } from '../assets/asset-key.ts';
import type { AssetMeta, CachedAsset } from '../cache/cached-asset.ts';
import type { StoredBody } from '../cache/asset-cache.ts';

/** A parsed path of `live/` or `o/`. */
export type Missing =
  | { readonly kind: 'live'; readonly key: AssetKey; readonly origin: string; readonly url: string }
  | { readonly kind: 'object'; readonly key: AssetKey };

/** An asset to revalidate, with the generation of the cache before its look-up: after a later purge it is fetched anew. */
export interface StaleAsset extends CachedAsset {
  readonly generation: number;
}

export interface FillResult {
  /** Undefined: the origin answered 404 or 410, or storage has no such object. */
  readonly asset: CachedAsset | undefined;
  /** The caller did not lead the fill: it joined one that was under way. */
  readonly isCollapsed: boolean;
  /** Whether the asset is on its way into the cache. */
  readonly isStored: boolean;
  /** `revalidated`: the origin confirmed the cached asset with 304. */
  readonly how: 'fetched' | 'revalidated' | 'none';
}

export interface Fills {
  /**
   * Waits for the fill of a key; the fill goes on if the caller leaves. `stale` is revalidated instead of fetched. The queue
   * is fair by `ip`.
   * Refuses with one of the reasons `not_allowed`, `amnesia`, `body_cap`, `decompress_cap`, `etag_invalid`, `timeout`;
   * with `busy` if the queue is full, `bad_gateway`, `breaker_open`.
   */
  fill(missing: Missing, stale: StaleAsset | undefined, deadline: Deadline, ip: string): Promise<FillResult>;
  /** Starts a revalidation in the background, for stale-while-revalidate. Does nothing if the queue is full. */
  refresh(missing: Missing, stale: StaleAsset): void;
}

/** A completed fill on its way to the task `fill_log`, through the channel `fills`. */
export interface FilledAsset {
  readonly meta: AssetMeta;
  readonly body: StoredBody;
  /** The generation of the cache when the fill began. */
  readonly generation: number;
  /** The task calls it once the asset is kept, or is not going to be: until then the fill answers requests of its key. */
  settled(): void;
}
