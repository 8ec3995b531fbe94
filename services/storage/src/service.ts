/**
 * The topology of storage.
 *
 *     listener --> work_get(256) --> GET pool --> object store --> volume, or a set of them (log + index each)
 *        |    `--> work_put(256) --> PUT pool -->      |   ^               ^   |
 *        |                                             |   |               |   `-- lost, failed reads --> repair planner
 *        |                                             |   |               |                                     |
 *        |                                             |   |   striper, scrub, K repair workers <-- repair(256) --'
 *        |                                             |   `-- compaction, on request or by compact_timer
 *        |                                             |--> announce(4096) --> announcer --> index, over its Unix socket
 *        `-- bytes in RAM or in the page cache         `--> events(1024) --> event log
 *            are answered here
 */
import { limitQueueWait } from '@ron/ingress';
import { defineService, startService, type OpenContext, type StartInit } from '@ron/service';
import { concurrency } from './concurrency.ts';
import { schema, type StorageConfig } from './config.ts';
import { eventLevel } from './events.ts';
import { durabilityMeter } from './objects/durability-meter.ts';
import { openParts } from './parts.ts';
import { gatesOf } from './readiness.ts';
import { routes } from './routes.ts';
import { compactTimer, uploadExpiry } from './maintenance/timers.ts';
import type { EngineEvent } from './volumes/engine.ts';
import { VolumeDecisions } from './volumes/volume-decisions.ts';

export type StorageContext = OpenContext<StorageConfig, typeof concurrency, EngineEvent, object>;

export const storage = defineService({
  name: 'storage',
  config: schema,
  concurrency,
  eventLevel,
  async open(context: StorageContext) {
    const { config, current, runtime, log, isStopping } = context;
    const { engine, announcer, hot, maintenance, foreground, admin, compaction } = await openParts(context);
    const { volumes } = engine;
    const workGet = runtime.workQueue('work_get');
    const workPut = runtime.workQueue('work_put');
    return {
      routes: routes({
        ...engine,
        decisions: new VolumeDecisions(volumes, config),
        tasks: admin,
        compaction,
        maintenance,
        foreground,
        guardReads: config.auth.reads,
        meter: durabilityMeter(volumes, config),
        putStep: (parent) => runtime.deadline('put', { parent }),
        uploadStep: () => runtime.deadline('put'),
        onOpened: (object) => hot.remember(object),
      }),
      lanes: { get: workGet, put: limitQueueWait(workPut, () => runtime.deadline('wait')) },
      fast: {
        route: 'GET /o/:addr',
        lookup: (target) => hot.lookup(target),
        openNow: (target) => hot.openNow(target, engine.store),
      },
      gates: gatesOf({ volumes, maintenance, announcer, queues: [workGet, workPut] }),
      tasks: {
        get_pool: (task) => workGet.serve(task),
        put_pool: (task) => workPut.serve(task),
        volume_watch: ({ stopping }) => volumes.run(stopping),
        repair_planner: (task) => maintenance.runPlanner(task),
        repair_pool: (task) => maintenance.runWorker(task),
        repair_pacing: ({ stopping }) => maintenance.pacing.run(stopping),
        scrub: (task) => maintenance.runScrub(task),
        striper: (task) => maintenance.runStriper(task),
        upload_expiry: ({ stopping }) => uploadExpiry(engine.uploads, { isStopping, log }, stopping),
        announcer: async ({ stopping }) => await announcer?.run(stopping),
        compact_timer: ({ stopping }) =>
          compactTimer(
            { current, volumes, isStopping, log, start: () => admin.start('compact', compaction) },
            stopping,
          ),
      },
      async applyConfig(next, within) {
        maintenance.follow();
        await volumes.follow(next, within);
      },
      // The planner stops with the shutdown; the workers empty the queue within the drain.
      afterRequests: () => maintenance.beginDrain(),
      // A volume syncs three times, one after the other, on a disk that may be slow.
      close_ms: 8000,
      parts: { engine, maintenance },
    };
  },
});

export type StorageInit = StartInit<StorageConfig>;
export type Storage = Awaited<ReturnType<typeof startStorage>>;

export function startStorage(init: StorageInit) {
  return startService(storage, init);
}
