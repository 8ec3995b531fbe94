/** Opens the parts of storage, in the order in which they depend on each other. */
import { RepairQueue } from '@ron/durability';
import type { Address, TaskKind } from '@ron/proto';
import { AdminTasks } from '@ron/service';
import type { Announcer } from './announce/announcer.ts';
import { ChangedObjects } from './announce/changed-objects.ts';
import { openAnnouncer } from './announce/open-announcer.ts';
import { eventPublisher } from './events.ts';
import { measureAnnouncer, measureEngine, measureMaintenance, repairMeters } from './metrics.ts';
import { Foreground, newIoCounters } from './objects/foreground.ts';
import { HotObjects } from './objects/hot-objects.ts';
import type { StorageContext } from './service.ts';
import { compactionOf, TASK_KINDS } from './maintenance/task-kinds.ts';
import { Maintenance } from './maintenance/maintenance.ts';
import { journalScrubOf, openEngine, type Engine } from './volumes/engine.ts';

export async function openParts(context: StorageContext) {
  const { config, current, runtime, log, metrics, fs, signal, events, isStopping, resources, openAuth } = context;
  const hot = new HotObjects(config.storage.fast_path ? config.storage.cache_bytes : 0);
  const changed = runtime.own('announce', (capacity) => new ChangedObjects(capacity));
  const onChanged = (address: Address): void => changed.note(address);
  const onVolumes = (): void => announcer?.requestWalk();
  let announcer: Announcer | undefined;
  const publish = eventPublisher({ metrics, events, hot, store: () => engine.store, onChanged, onVolumes });
  const engine: Engine = resources.use(await openEngine({ config, publish, onStored: onChanged, signal, fs }));
  announcer = await openAnnouncer(context, engine, changed);
  await openAuth({ dir: engine.dir });
  measureEngine(metrics, engine, hot);
  measureAnnouncer(metrics, announcer);
  const foreground = new Foreground(runtime.cell('io_counters', newIoCounters()));
  const meters = repairMeters(metrics);
  const queue = runtime.own('repair', (capacity) => new RepairQueue({ capacity, onSkipped: meters.onSkipped }));
  const maintenance = new Maintenance({
    volumes: engine.volumes,
    queue,
    source: current,
    isStopping,
    latencies_ms: () => foreground.takeP95s_ms(),
    onWaited: meters.onWaited,
    broken: () => engine.compactor.broken,
    journals: journalScrubOf(engine),
    log,
  });
  measureMaintenance(metrics, maintenance);
  const admin = new AdminTasks<TaskKind>((kind, run) => runtime.run(TASK_KINDS[kind], ({ stopping }) => run(stopping)));
  return { engine, announcer, hot, maintenance, foreground, admin, compaction: compactionOf(engine) };
}
