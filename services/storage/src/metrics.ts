/** What storage counts besides the listener and the runtime. */
import type { Metrics } from '@ron/telemetry';
import type { Engine, EngineEvent } from './volumes/engine.ts';
import type { HotObjects } from './objects/hot-objects.ts';
import type { Maintenance } from './maintenance/maintenance.ts';

/** Gives the function that counts what happened to stored records. */
export function eventCounter(metrics: Metrics): (event: EngineEvent) => void {
  const integrity = metrics.counter('integrity_fail_total', 'Stored records that were not what they should be.', {
    reason: ['checksum', 'log'],
  });
  const rebuilt = metrics.counter('storage_index_rebuilt_total', 'Times that an index was made anew from the log.');
  return (event) => {
    if (event.kind === 'damaged') integrity.at('checksum').inc();
    if (event.kind === 'log damage') integrity.at('log').inc();
    if (event.kind === 'index rebuilt') rebuilt.inc();
  };
}

export function measureEngine(metrics: Metrics, { store, volumes, uploads }: Engine, hot: HotObjects): void {
  metrics.gaugeFrom('storage_used_bytes', 'Bytes that the volume takes.', ['volume'], () =>
    volumes.views.map(({ name, used_bytes }) => ({ labels: { volume: name }, value: used_bytes })),
  );
  metrics.gaugeFrom('storage_cache_bytes', 'Verified bytes kept in memory, by cache.', ['cache'], () => [
    { labels: { cache: 'chunks' }, value: store.cache.bytes },
    { labels: { cache: 'answers' }, value: hot.used_bytes },
    { labels: { cache: 'manifests' }, value: store.manifest_bytes },
  ]);
  metrics.counterFrom('storage_cache_hits_total', 'Contents found in memory, by cache.', ['cache'], () => [
    { labels: { cache: 'chunks' }, value: store.cache.hits_total },
    { labels: { cache: 'answers' }, value: hot.hits_total },
    // Of the operating system: read and checked on the spot.
    { labels: { cache: 'page' }, value: hot.opened_total },
  ]);
  metrics.gaugeFrom(
    'storage_uploads',
    'Uploads that are under way, and finished ones that still tell.',
    ['state'],
    () => [
      { labels: { state: 'open' }, value: uploads.counts.open },
      { labels: { state: 'finished' }, value: uploads.counts.finished },
    ],
  );
  metrics.gaugeFrom('storage_volume_ok', 'Whether the volume takes writes.', ['volume'], () =>
    volumes.views.map(({ name, condition }) => ({ labels: { volume: name }, value: condition === 'ok' ? 1 : 0 })),
  );
}

export interface RepairMeters {
  readonly onWaited: (waited_ms: number) => void;
  readonly onSkipped: () => void;
}

/** What repair needs before it can be built. */
export function repairMeters(metrics: Metrics): RepairMeters {
  const waits = metrics.histogram(
    'repair_wait_seconds',
    'How long repair waited for its byte rate.',
    [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10],
  );
  const skipped = metrics.counter('repair_skipped_total', 'Repairs that were put off, by reason.', {
    reason: ['full'],
  });
  const full = skipped.at('full');
  return { onWaited: (waited_ms) => waits.observe(waited_ms / 1000), onSkipped: () => full.inc() };
}

export function measureMaintenance(metrics: Metrics, maintenance: Maintenance): void {
  const gauge = (name: string, help: string, read: () => number): void =>
    metrics.gaugeFrom(name, help, [], () => [{ labels: {}, value: read() }]);
  const total = (name: string, help: string, read: () => number): void =>
    metrics.counterFrom(name, help, [], () => [{ labels: {}, value: read() }]);
  gauge('rf_target', 'Copies that each record is to have.', () => maintenance.status.target);
  gauge(
    'rf_observed',
    'The fewest copies that any record had, by the last inventory.',
    () => maintenance.status.observed,
  );
  gauge(
    'repair_deficit_chunks',
    'Records that lack a copy or a shard, by the last inventory.',
    () => maintenance.planner.deficit,
  );
  gauge(
    'stripe_crowded_shards',
    'Shards that lie in one place with another of their stripe, by the last inventory.',
    () => maintenance.planner.report.crowded,
  );
  gauge(
    'storage_broken_objects',
    'Objects with missing parts, by the last compaction.',
    () => maintenance.status.broken ?? 0,
  );
  gauge('repair_rate_bytes_per_second', 'How fast repair may go now.', () => maintenance.pacing.allowed_bytes_per_s);
  total(
    'repair_bytes_total',
    'Bytes that repair, scrub and striping read and wrote.',
    () => maintenance.pacing.taken_bytes_total,
  );
  total('repair_plans_total', 'Inventories that were compared.', () => maintenance.planner.plans_total);
  metrics.counterFrom('repairs_total', 'Repairs, by how they ended.', ['result'], () =>
    Object.entries(maintenance.results).map(([result, value]) => ({ labels: { result }, value })),
  );
  metrics.gaugeFrom('scrub_pass_bytes', 'Bytes that the pass over a volume has read.', ['volume'], () =>
    maintenance.scrubs.map(({ name, bytes }) => ({ labels: { volume: name }, value: bytes })),
  );
}
