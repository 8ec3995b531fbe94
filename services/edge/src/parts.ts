/**
 * Opens the parts of edge, in the order in which they depend on each other. They are closed in reverse: [edge I-6] fills before
 * the fill log and the cache to which they write, and packs last.
 */
import { PageFiles } from '@ron/pages';
import { DiskReads } from './assets/disk-reads.ts';
import { prepareAsset } from './assets/fetched-answer.ts';
import { FetchedAssets } from './assets/fetched-assets.ts';
import { HitTotals, newHitCounts } from './assets/hit-totals.ts';
import { PackTiles } from './assets/pack-tiles.ts';
import { MAP_FILES } from './map/map-page.ts';
import { edgeMeters, measureParts } from './metrics.ts';
import { ModeState } from './mode-state.ts';
import { openCache } from './cache/open-cache.ts';
import { openFills } from './fill/open-fills.ts';
import { FillKeeper } from './fill-log/fill-keeper.ts';
import { openFillLog } from './fill-log/open-fill-log.ts';
import type { AssetMeta } from './cache/cached-asset.ts';
import type { FilledAsset } from './fill/fills.ts';
import { openPacks } from './packs/open-packs.ts';
import type { EdgeContext } from './service.ts';
import { storageOf } from './storage.ts';

export async function openParts(context: EdgeContext) {
  const { config, current, events, runtime, metrics, resources, openAuth } = context;
  const dir = config.amnesia.enabled ? undefined : config.data_dir!;
  await openAuth({ dir });
  const meters = edgeMeters(metrics);
  const work = runtime.workQueue('work');
  const storage = storageOf(config);
  const packs = resources.use(await openPacks(context, { dir, meters, storage }));
  const cache = resources.use(await openAssetCache(context, dir));
  const filled = runtime.mpsc<FilledAsset>('fills');
  const fillLog = resources.use(await openLog(context, dir));
  const keeper = resources.use(
    new FillKeeper({
      fills: filled,
      log: fillLog,
      cache,
      deadline: () => runtime.deadline('fill_log'),
      count: (result, count) => meters.kept.at(result).inc(count),
    }),
  );
  const fills = resources.use(await openFills(context, { work, fills: filled, cache, fillLog, storage, meters }));
  const reads = runtime.own('reads', (capacity) => new DiskReads(capacity));
  const tiles = new PackTiles(packs, cache.ram, reads);
  const hits = new HitTotals(runtime.cell('counters', newHitCounts()));
  const fetched = new FetchedAssets({ cache, fills, reads, current, hits });
  const mode = new ModeState(runtime.cell('state_meta', { mode: config.edge.mode }), (next) =>
    events.publish({ kind: 'mode changed', mode: next }),
  );
  const mapFiles = resources.use(new PageFiles(MAP_FILES));
  measureParts(metrics, { cache, fillLog, mode, hits });
  return { dir, meters, work, packs, cache, fillLog, keeper, fills, reads, tiles, fetched, hits, mode, mapFiles };
}

async function openAssetCache({ config, current, events, fs, signal }: EdgeContext, dir: string | undefined) {
  const onProblem = (problem: string): void => events.publish({ kind: 'cache disk failed', problem });
  const prepare = (meta: AssetMeta, bytes: Uint8Array) => prepareAsset(meta, bytes, current.value.fill);
  return await openCache({ config, dir, fs, prepare, onProblem, signal });
}

async function openLog({ config, runtime, fs, log, signal }: EdgeContext, dir: string | undefined) {
  const deadline = () => runtime.deadline('checkpoint');
  const warn = (message: string, err?: unknown): void => log.warn({ err }, message);
  return await openFillLog({ config, dir, fs, deadline, warn, signal });
}
