/** The metrics of storage, besides those of the listener and the runtime. */
import type { Metrics } from '@ron/telemetry';
import type { Announcer } from './announce/announcer.ts';
import type { Engine, EngineEvent } from './volumes/engine.ts';
import type { HotObjects } from './objects/hot-objects.ts';
import type { Maintenance } from './maintenance/maintenance.ts';

/** Returns the function that counts events of stored records. */
export function eventCounter(metrics: Metrics): (event: EngineEvent) => void {
  const integrity = metrics.counter('integrity_fail_total', 'Stored records that failed verification.', {
    reason: ['checksum', 'log'],
  });
  const rebuilt = metrics.counter('storage_index_rebuilt_total', 'Rebuilds of an index from the log.');
  return (event) => {
    if (event.kind === 'damaged') integrity.at('checksum').inc();
    if (event.kind === 'log damage') integrity.at('log').inc();
    if (event.kind === 'index rebuilt') rebuilt.inc();
  };
}

export function measureEngine(metrics: Metrics, { store, volumes, uploads }: Engine, hot: HotObjects): void {
  metrics.gaugeFrom('storage_used_bytes', 'Bytes on disk or in memory of the volume.', ['volume'], () =>
    volumes.views.map(({ name, used_bytes }) => ({ labels: { volume: name }, value: used_bytes })),
  );
  metrics.gaugeFrom('storage_cache_bytes', 'Verified bytes kept in memory, by cache.', ['cache'], () => [
    { labels: { cache: 'chunks' }, value: store.cache.bytes },
    { labels: { cache: 'answers' }, value: hot.used_bytes },
    { labels: { cache: 'manifests' }, value: store.manifest_bytes },
  ]);
  metrics.counterFrom('storage_cache_hits_total', 'Cache hits, by cache.', ['cache'], () => [
    { labels: { cache: 'chunks' }, value: store.cache.hits_total },
    { labels: { cache: 'answers' }, value: hot.hits_total },
    // The page cache of the operating system.
    { labels: { cache: 'page' }, value: hot.opened_total },
  ]);
  metrics.gaugeFrom(
    'storage_uploads',
    'Unfinished uploads, and finished ones that still report their address.',
    ['state'],
    () => [
      { labels: { state: 'open' }, value: uploads.counts.open },
      { labels: { state: 'finished' }, value: uploads.counts.finished },
    ],
  );
  metrics.gaugeFrom('storage_volume_ok', '1 if the volume accepts writes, else 0.', ['volume'], () =>
    volumes.views.map(({ name, condition }) => ({ labels: { volume: name }, value: condition === 'ok' ? 1 : 0 })),
  );
}

/** Zero without an index. */
export function measureAnnouncer(metrics: Metrics, announcer: Announcer | undefined): void {
  const total = (name: string, help: string, read: (of: Announcer) => number): void =>
    metrics.counterFrom(name, help, [], () => [{ labels: {}, value: announcer === undefined ? 0 : read(announcer) }]);
  total('announced_objects_total', 'Objects that were announced to index.', (of) => of.announced_total);
  total('withdrawn_objects_total', 'Removed objects that were withdrawn from index.', (of) => of.withdrawn_total);
  total('announce_failures_total', 'Announcements that index did not accept.', (of) => of.failed_total);
  total('announce_walks_total', 'Complete walks that announced all objects.', (of) => of.walks_total);
  metrics.gaugeFrom('announce_walking', '1 while a walk announces all objects, else 0.', [], () => [
    { labels: {}, value: announcer?.isWalking === true ? 1 : 0 },
  ]);
}

export interface RepairMeters {
  readonly onWaited: (waited_ms: number) => void;
  readonly onSkipped: () => void;
}

/** The metrics that repair updates itself. */
export function repairMeters(metrics: Metrics): RepairMeters {
  const waits = metrics.histogram(
    'repair_wait_seconds',
    'Time for which repair waited for its rate limit.',
    [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10],
  );
  const skipped = metrics.counter('repair_skipped_total', 'Postponed repairs, by reason.', {
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
  gauge('rf_target', 'The replication factor.', () => maintenance.status.target);
  gauge('rf_observed', 'The fewest copies of any record in the last inventory.', () => maintenance.status.observed);
  gauge(
    'repair_deficit_chunks',
    'Records with a missing copy or shard in the last inventory.',
    () => maintenance.planner.deficit,
  );
  gauge(
    'stripe_crowded_shards',
    'Shards that share a failure domain with another shard of their stripe, in the last inventory.',
    () => maintenance.planner.report.crowded,
  );
  gauge(
    'storage_broken_objects',
    'Objects with missing chunks, counted by the last compaction.',
    () => maintenance.status.broken ?? 0,
  );
  gauge(
    'repair_rate_bytes_per_second',
    'The current rate limit of repair.',
    () => maintenance.pacing.allowed_bytes_per_s,
  );
  total(
    'repair_bytes_total',
    'Bytes that repair, scrub and striping have read and written.',
    () => maintenance.pacing.taken_bytes_total,
  );
  total('repair_plans_total', 'Completed repair plans.', () => maintenance.planner.plans_total);
  metrics.counterFrom('repairs_total', 'Repairs, by result.', ['result'], () =>
    Object.entries(maintenance.results).map(([result, value]) => ({ labels: { result }, value })),
  );
  metrics.gaugeFrom('scrub_pass_bytes', 'Bytes that the current scrub pass of a volume has read.', ['volume'], () =>
    maintenance.scrubs.map(({ name, bytes }) => ({ labels: { volume: name }, value: bytes })),
  );
}
