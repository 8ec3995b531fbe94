/** The metrics of index, besides those of the listener and the runtime. */
import type { Counter, Histogram, Metrics, Sample } from '@ron/telemetry';
import type { BreakerState, Cell } from '@ron/kernel';

const LATENCY_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.4, 0.8, 1.2, 2.5];
const LOOKUP_MS = [5, 10, 25, 50, 100, 150, 250, 400, 600, 800, 1000, 1200, 2500];

/** Counters and histograms that the parts update. */
export interface IndexMeters {
  readonly resolve_latency: Histogram<never>;
  readonly resolve_deadline_hit: Counter<never>;
  readonly dht_lookup_ms: Histogram<never>;
  readonly hedges: Counter<'result'>;
  readonly forks: Counter<never>;
}

export function indexMeters(metrics: Metrics): IndexMeters {
  return {
    resolve_latency: metrics.histogram(
      'resolve_latency_seconds',
      'Time from the start of a lookup to its end, without answers from the cache.',
      LATENCY_SECONDS,
    ),
    resolve_deadline_hit: metrics.counter('resolve_deadline_hit', 'Lookups that found nothing within their budget.'),
    dht_lookup_ms: metrics.histogram('index_dht_lookup_ms', 'Time of the DHT phase of a lookup.', LOOKUP_MS),
    hedges: metrics.counter('index_hedges_total', 'Hedges of lookups, by result.', {
      result: ['started', 'won', 'refused'],
    }),
    forks: metrics.counter('index_name_forks_total', 'Names whose records contradict each other, when first found.'),
  };
}

/** Ended lookups by the source of their answer, below the lock `metrics_scratch`. */
export type LookupTotals = Record<LookupResult, number>;
export type LookupResult = 'db' | 'dht' | 'none' | 'failed';

export const newLookupTotals = (): LookupTotals => ({ db: 0, dht: 0, none: 0, failed: 0 });

export interface MeasuredParts {
  readonly lookups: Cell<LookupTotals>;
  readonly cache: {
    readonly size: number;
    totals(): { readonly hits: number; readonly misses: number; readonly evictions: number };
  };
  readonly breakers: {
    series(): Iterable<{
      readonly target: string;
      readonly rejected: number;
      readonly states: Readonly<Record<BreakerState, number>>;
    }>;
  };
  readonly dht: { readonly known: number };
  readonly probes: {
    readonly totals: {
      readonly proven: number;
      readonly unreachable: number;
      readonly skipped: number;
      readonly failed: Readonly<Record<string, number>>;
    };
  };
}

/** Values that are read from their owner at a scrape. */
export function measureParts(metrics: Metrics, { cache, breakers, dht, lookups, probes }: MeasuredParts): void {
  metrics.counterFrom('index_probes_total', 'Probes of providers, by result or kind of failure.', ['result'], () => {
    const { failed, ...others } = probes.totals;
    return Object.entries({ ...others, ...failed }).map(([result, value]) => ({ labels: { result }, value }));
  });
  metrics.counterFrom('index_lookups_total', 'Lookups, by the source of the answer.', ['result'], () =>
    Object.entries(lookups.withSync((totals) => ({ ...totals }))).map(([result, value]) => ({
      labels: { result },
      value,
    })),
  );
  metrics.gaugeFrom('index_cache_entries', 'Cached answers, pinned ones included.', [], () => [one(cache.size)]);
  metrics.counterFrom('index_cache_requests_total', 'Reads of the cache, by result.', ['result'], () => {
    const { hits, misses } = cache.totals();
    return [
      { labels: { result: 'hit' }, value: hits },
      { labels: { result: 'miss' }, value: misses },
    ];
  });
  metrics.counterFrom('index_cache_evictions_total', 'Answers evicted before they expired.', [], () => [
    one(cache.totals().evictions),
  ]);
  metrics.gaugeFrom('index_dht_peers', 'Known peers of the DHT.', [], () => [one(dht.known)]);
  metrics.gaugeFrom(
    'breaker_state',
    'Breakers in each state, by target: 64 peers and providers, then `other`.',
    ['target', 'state'],
    () =>
      [...breakers.series()].flatMap(({ target, states }) =>
        Object.entries(states).map(([state, value]) => ({ labels: { target, state }, value })),
      ),
  );
  metrics.counterFrom('breaker_open_total', 'Requests refused by an open breaker, by target.', ['target'], () =>
    [...breakers.series()].map(({ target, rejected }) => ({ labels: { target }, value: rejected })),
  );
}

const one = (value: number): Sample => ({ labels: {}, value });
