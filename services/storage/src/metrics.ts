/** What storage counts besides the listener and the runtime. */
import type { Metrics } from '@ron/kernel';
import type { Engine, EngineEvent } from './engine.ts';
import type { HotObjects } from './hot-objects.ts';

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

export function measureEngine(metrics: Metrics, { store, volume, uploads }: Engine, hot: HotObjects): void {
  metrics.gaugeFrom('storage_used_bytes', 'Bytes that the volume takes.', ['volume'], () => [
    { labels: { volume: volume.name }, value: volume.stats().used_bytes },
  ]);
  metrics.gaugeFrom('storage_cache_bytes', 'Verified bytes kept in memory, by cache.', ['cache'], () => [
    { labels: { cache: 'chunks' }, value: store.cache.used_bytes },
    { labels: { cache: 'answers' }, value: hot.used_bytes },
  ]);
  metrics.counterFrom('storage_cache_hits_total', 'Contents found in memory, by cache.', ['cache'], () => [
    { labels: { cache: 'chunks' }, value: store.cache.hits_total },
    { labels: { cache: 'answers' }, value: hot.hits_total },
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
  metrics.gaugeFrom('storage_volume_ok', 'Whether the volume takes writes.', ['volume'], () => [
    { labels: { volume: volume.name }, value: volume.state.condition === 'ok' ? 1 : 0 },
  ]);
}
