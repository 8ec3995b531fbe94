/** The metrics of edge, besides those of the listener and the runtime. */
import type { Counter, Metrics } from '@ron/telemetry';

/** Counters that the parts update. */
export interface EdgeMeters {
  readonly fills: Counter<'result'>;
  readonly integrity: Counter<'reason'>;
  readonly kept: Counter<'result'>;
}

export function edgeMeters(metrics: Metrics): EdgeMeters {
  return {
    integrity: metrics.counter('integrity_fail_total', 'Packs whose bytes are not the verified ones.', {
      reason: ['pack'],
    }),
    fills: metrics.counter('edge_fills_total', 'Ended fills, by result.', {
      result: ['fetched', 'revalidated', 'absent', 'refused', 'failed'],
    }),
    kept: metrics.counter('edge_kept_total', 'Completed fills that the task fill_log took, by result.', {
      result: ['kept', 'purged', 'superseded', 'failed'],
    }),
  };
}

export interface MeasuredParts {
  readonly mode: { readonly isLive: boolean };
  readonly hits: { totals(): Readonly<Record<string, number>> };
  readonly cache: { readonly disk_bytes: number; readonly ram: { readonly bytes: number } };
  readonly fillLog: { readonly size: number; readonly bytes: number; readonly unsigned: number };
}

/** Values that are read from their owner at a scrape. */
export function measureParts(metrics: Metrics, { cache, fillLog, mode, hits }: MeasuredParts): void {
  metrics.gaugeFrom('edge_live', '1 if assets may be fetched from origins (edge.mode), 0 if not.', [], () => [
    { labels: {}, value: mode.isLive ? 1 : 0 },
  ]);
  metrics.counterFrom('edge_hits_total', 'Assets that were answered without a fill, by tier.', ['tier'], () =>
    Object.entries(hits.totals()).map(([tier, value]) => ({ labels: { tier }, value })),
  );
  metrics.gaugeFrom('edge_cache_bytes', 'Bytes of cached assets, by tier.', ['tier'], () => [
    { labels: { tier: 'ram' }, value: cache.ram.bytes },
    { labels: { tier: 'cas' }, value: cache.disk_bytes },
  ]);
  const fromLog = (name: string, help: string, value: () => number): void =>
    metrics.gaugeFrom(name, help, [], () => [{ labels: {}, value: value() }]);
  fromLog('edge_fill_log_entries', 'Entries of the fill log, with pruned ones.', () => fillLog.size);
  fromLog('edge_fill_log_bytes', 'Bytes of the fill log.', () => fillLog.bytes);
  fromLog('edge_fill_log_unsigned', 'Entries of the fill log that no checkpoint covers.', () => fillLog.unsigned);
}
