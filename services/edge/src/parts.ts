/**
 * Opens the parts of edge, in the order in which they depend on each other. They are closed in reverse: [edge I-6] fills before
 * the fill log and the cache to which they write, and packs last.
 */
import { PageFiles } from '@ron/pages';
import { MAP_FILES } from './map/map-page.ts';
import { edgeMeters, measureParts } from './metrics.ts';
import { noCache, noFillLog, noFills, noPacks } from './absent-parts.ts';
import type { EdgeContext } from './service.ts';

export async function openParts(context: EdgeContext) {
  const { config, runtime, metrics, resources, openAuth } = context;
  const dir = config.amnesia.enabled ? undefined : config.data_dir!;
  await openAuth({ dir });
  const meters = edgeMeters(metrics);
  const work = runtime.workQueue('work');
  const packs = noPacks();
  const cache = noCache();
  const fillLog = noFillLog();
  const fills = noFills();
  const mapFiles = resources.use(new PageFiles(MAP_FILES));
  measureParts(metrics, { cache });
  return { dir, meters, work, packs, cache, fillLog, fills, mapFiles };
}
