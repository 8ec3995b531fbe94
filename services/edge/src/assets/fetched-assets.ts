/**
 * Assets of origins and objects of storage: from memory, from disk, or by a fill.
 *
 * Contract (RFC 9111): a fresh asset is answered at once. A stale one is answered without its origin in offline mode, within
 * stale-while-revalidate, and within stale-if-error after the origin failed, unless the origin forbids it. With
 * `only-if-cached` no fill begins. Requests that wait for a fill are parked: they hold no place in a queue or in flight.
 * Bound: that of fills and of reads. Cancellation: the deadline of the request; a fill goes on.
 */
import type { ByteSource, RouteContext } from '@ron/ingress';
import { isRonError, RonError, sched } from '@ron/kernel';
import type { AssetCache } from '../cache/asset-cache.ts';
import type { CachedAsset } from '../cache/cached-asset.ts';
import type { EdgeConfig } from '../config.ts';
import type { FillResult, Fills, Missing, StaleAsset } from '../fill/fills.ts';
import { freshnessOf, type Freshness } from '../fill/freshness/freshness.ts';
import { fillStatus, hitStatus, type HitTier } from './cache-status.ts';
import type { DiskReads } from './disk-reads.ts';
import type { HitTotals } from './hit-totals.ts';
import { expiresOf, fetchedSource } from './fetched-answer.ts';

export interface FetchedAssetsInit {
  readonly cache: AssetCache;
  readonly fills: Fills;
  readonly reads: DiskReads;
  readonly current: { readonly value: Pick<EdgeConfig, 'edge' | 'fill'> };
  readonly hits: HitTotals;
}

type Request = Pick<RouteContext, 'headers' | 'deadline' | 'ip' | 'park'>;

export class FetchedAssets {
  readonly #init: FetchedAssetsInit;

  constructor(init: FetchedAssetsInit) {
    this.#init = init;
  }

  async answer(missing: Missing, request: Request): Promise<ByteSource> {
    // Before the look-up: a purge may come while it waits.
    const { generation } = this.#init.cache;
    const cached = await this.#cached(missing, request.deadline.signal);
    if (cached === undefined) {
      refuseFill(request, 'no cached answer');
      return this.#filled(await this.#fill(missing, undefined, request), false);
    }
    const freshness = this.#freshnessOf(cached);
    if (freshness.isFresh) return this.#hit(cached, freshness);
    return await this.#answerStale(missing, { ...cached, generation }, freshness, request);
  }

  async #cached({ key }: Missing, signal: AbortSignal): Promise<CachedAsset | undefined> {
    const { cache, reads } = this.#init;
    const found = cache.ram.find(key);
    if (found?.isNegative === true && found.isFresh) throw notFound();
    if (found?.asset?.meta !== undefined)
      return { meta: found.asset.meta, source: found.asset.entry.source, tier: 'ram' };
    return await reads.run(signal, () => cache.find(key, signal));
  }

  async #answerStale(
    missing: Missing,
    cached: StaleAsset,
    freshness: Freshness,
    request: Request,
  ): Promise<ByteSource> {
    if (this.#init.current.value.edge.mode === 'offline') {
      if (freshness.mustRevalidate) throw notCached('the cached answer is stale, and its origin forbids to send it');
      return this.#hit(cached, freshness);
    }
    if (freshness.while_revalidate_ms > 0) {
      this.#init.fills.refresh(missing, cached);
      return this.#hit(cached, freshness);
    }
    refuseFill(request, 'the cached answer is stale');
    try {
      return this.#filled(await this.#fill(missing, cached, request), true);
    } catch (error) {
      if (freshness.if_error_ms > 0 && isOriginFailure(error)) return this.#hit(cached, freshness);
      throw error;
    }
  }

  #fill(missing: Missing, stale: StaleAsset | undefined, request: Request): Promise<FillResult> {
    const { deadline, ip } = request;
    return request.park(() => this.#init.fills.fill(missing, stale, deadline, ip));
  }

  #hit({ meta, source, tier }: CachedAsset, freshness: Freshness): ByteSource {
    const { hits, reads } = this.#init;
    const found: HitTier = tier === 'ram' ? 'ram' : 'cas';
    hits.count(found);
    const answer = fetchedSource(meta, source, hitStatus(found, expiresOf(freshness)), freshness.age_s);
    if (source.ram !== undefined) return answer;
    return { ...answer, read: (start, end, signal) => reads.batches(signal, () => source.read(start, end, signal)) };
  }

  #filled(result: FillResult, isStale: boolean): ByteSource {
    const { asset } = result;
    if (asset === undefined) throw notFound();
    const freshness = this.#freshnessOf(asset);
    const status = fillStatus(result, isStale, expiresOf(freshness));
    return fetchedSource(asset.meta, asset.source, status, freshness.age_s);
  }

  #freshnessOf({ meta }: CachedAsset): Freshness {
    return freshnessOf(meta, this.#init.current.value.fill, sched.wall_ms());
  }
}

const ONLY_IF_CACHED = /(?:^|,)[\t ]*only-if-cached[\t ]*(?:,|$)/i;

/** The client accepts no answer that needs a fill. */
function refuseFill({ headers }: Request, why: string): void {
  if (ONLY_IF_CACHED.test(headers['cache-control'] ?? '')) throw notCached(why);
}

/** Stale answers replace failures of the origin, not refusals of the request. */
function isOriginFailure(error: unknown): boolean {
  return isRonError(error) && error.status >= 500 && error.code !== 'draining';
}

const notCached = (why: string): RonError =>
  new RonError('not_cached', `${why}; repeat without only-if-cached, or online`);
const notFound = (): RonError => new RonError('not_found', 'the origin has no such asset');
