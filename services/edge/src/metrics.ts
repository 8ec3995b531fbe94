/** The metrics of edge, besides those of the listener and the runtime. */
import type { Counter, Metrics } from '@ron/telemetry';

/** Counters that the parts update. */
export interface EdgeMeters {
  readonly hits: Counter<'tier'>;
  readonly fills: Counter<'result'>;
}

export function edgeMeters(metrics: Metrics): EdgeMeters {
  return {
    hits: metrics.counter('edge_hits_total', 'Assets that were answered without a fill, by tier.', {
      tier: ['pack', 'ram', 'cas'],
    }),
    fills: metrics.counter('edge_fills_total', 'Ended fills, by result.', {
      result: ['fetched', 'revalidated', 'absent', 'refused', 'failed'],
    }),
  };
}

export interface MeasuredParts {
  readonly cache: { readonly disk_bytes: number; readonly ram: { readonly bytes: number } };
}

/** Values that are read from their owner at a scrape. */
export function measureParts(metrics: Metrics, { cache }: MeasuredParts): void {
  metrics.gaugeFrom('edge_cache_bytes', 'Bytes of cached assets, by tier.', ['tier'], () => [
    { labels: { tier: 'ram' }, value: cache.ram.bytes },
    { labels: { tier: 'cas' }, value: cache.disk_bytes },
  ]);
}
