/**
 * The topology of edge.
 *
 *     listener --> assets in memory, packs in the page cache (fast path)
 *        |-------> packs and cached assets on disk, read by the handler
 *        |-------> SingleFlight by key --> work(512) --> workers --> origins, storage
 *        |                                                 `--> fills(1024) --> fill_log --> fill log --> notes of the cache
 *        `-------> verify(16) --> pack_verifier --> mounted packs
 *                                                  evictor --> cached assets within cache.disk_bytes
 */
import type { EgressInit } from '@ron/egress';
import type { TaskContext, WorkQueue } from '@ron/kernel';
import { defineService, startService, type OpenContext, type StartInit } from '@ron/service';
import { fastAssets } from './assets/fast-assets.ts';
import { concurrency } from './concurrency.ts';
import { schema, type EdgeConfig } from './config.ts';
import { eventLevel, type EdgeEvent } from './events.ts';
import { openParts } from './parts.ts';
import { gatesOf } from './readiness.ts';
import { REASONS } from './reasons.ts';
import { routes } from './routes.ts';

/** Parts that a program may replace. */
export interface EdgeOverrides {
  /** How origins are resolved and connected to. */
  readonly network: Pick<EgressInit, 'lookup' | 'connect'>;
  /** The life of one worker. */
  readonly serveWork: (work: WorkQueue, task: TaskContext) => Promise<void>;
}
export type EdgeContext = OpenContext<EdgeConfig, typeof concurrency, EdgeEvent, EdgeOverrides>;

export const edge = defineService({
  name: 'edge',
  config: schema,
  concurrency,
  eventLevel,
  async open(context: EdgeContext) {
    const { config, current, runtime, overrides } = context;
    const parts = await openParts(context);
    const { packs, cache, fills, fillLog, keeper, work, tiles, hits, mode } = parts;
    return {
      routes: routes({ ...parts, current, guardReads: config.auth.reads }),
      ...(config.edge.fast_path && { fast: fastAssets(tiles, hits, () => current.value.fill.query) }),
      cors: () => current.value.cors.origins,
      reasons: REASONS,
      gates: gatesOf({ packs, cache, fills, fillLog, work, supervisor: runtime.supervisor }),
      tasks: {
        worker: (task) => overrides.serveWork?.(work, task) ?? work.serve(task),
        pack_verifier: ({ stopping }) => packs.run(stopping),
        evictor: ({ stopping }) => cache.run(stopping),
        fill_log: ({ stopping }) => keeper.run(stopping),
      },
      // Files of packs may have changed although the configuration did not.
      applyConfig: (next, signal) => {
        mode.follow(next.edge.mode);
        fills.applyConfig();
        return packs.reload(signal);
      },
      // The fill log signs its last checkpoint, and the cache syncs its segments.
      close_ms: 6000,
      parts: { packs, cache, fills, fillLog },
    };
  },
});

export type EdgeInit = StartInit<EdgeConfig> & Partial<EdgeOverrides>;
export type Edge = Awaited<ReturnType<typeof startEdge>>;

export function startEdge(init: EdgeInit) {
  return startService(edge, init);
}
