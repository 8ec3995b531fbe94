/**
 * Wires the tasks, the queues and the routes of storage: this file is its topology.
 *
 *     listener --> work_get(256) --> GET pool --> object store --> volume, or a set of them (log + index each)
 *        |    `--> work_put(256) --> PUT pool -->      |   ^               ^   |
 *        |                                             |   |               |   `-- lost, failed reads --> repair planner
 *        |                                             |   |               |                                     |
 *        |                                             |   |   striper, scrub, K repair workers <-- repair(256) --'
 *        |                                             |   `-- compaction, by hand or by compact_timer
 *        `-- bytes in RAM or in the page cache         `--> events(1024) --> event log
 *            are answered here
 */
import { Checker, type KeySource } from '@ron/auth';
import { openServiceAuth } from '@ron/auth/service';
import { Deadline, NEVER, sched, sleep, type TaskContext, type WorkQueue } from '@ron/kernel';
import { ServiceRuntime, type Service, ConfigFollower, type FollowedSource, tasksDrain_ms } from '@ron/service';
import { type Log, type Metrics } from '@ron/telemetry';
import { RepairQueue } from '@ron/durability';
import { formatAddress, type TaskKind } from '@ron/proto';
import { createIngress, ingressConfigOf, StartingListener, type Ingress } from '@ron/ingress';
import { AdminTasks, type TaskWork } from './upkeep/admin-tasks.ts';
import { concurrency } from './concurrency.ts';
import type { StorageConfig } from './config.ts';
import { durabilityMeter } from './objects/durability-meter.ts';
import { journalScrubOf, openEngine, type Engine, type EngineEvent, type EngineInit } from './volumes/engine.ts';
import { Foreground } from './objects/foreground.ts';
import { HotObjects } from './objects/hot-objects.ts';
import { eventCounter, measureEngine, measureUpkeep, repairMeters } from './metrics.ts';
import { patientQueue } from './objects/patience.ts';
import { readinessOf } from './readiness.ts';
import { routes } from './routes.ts';
import { Upkeep } from './upkeep/upkeep.ts';
import { VolumeDecisions } from './volumes/volume-decisions.ts';

export interface StorageInit {
  readonly config: StorageConfig;
  /** The config in force; may change while the service runs. */
  readonly source?: FollowedSource<StorageConfig>;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly onFatal?: (kind: string, error: unknown) => void;
  readonly signal?: AbortSignal;
  /** The file system below the data directory. Default: the real one. */
  readonly fs?: EngineInit['fs'];
}

export interface Storage extends Service, AsyncDisposable {
  readonly ingress: Ingress;
  readonly runtime: ServiceRuntime<typeof concurrency>;
  readonly engine: Engine;
  readonly upkeep: Upkeep;
  readonly keys: KeySource;
}

const VERSION = '0.1.0';
const FLUSH_MS = 500;
/** A reload opens directories that were added. */
const RELOAD_MS = 60_000;
const EXPIRE_EVERY_MS = 60_000;
/** How often a compaction that is due checks whether the volumes that it needs are back. */
const COMPACT_RETRY_MS = 10_000;

export async function startStorage(init: StorageInit): Promise<Storage> {
  // Opening volumes may take long: probes are answered meanwhile.
  const starting = await StartingListener.open(ingressConfigOf(init.config));
  try {
    return await start(init, starting);
  } catch (error) {
    starting.close();
    throw error;
  }
}

async function start(init: StorageInit, starting: StartingListener): Promise<Storage> {
  const { config, metrics, log, onFatal, fs } = init;
  const source = init.source ?? { value: config };
  const signal = init.signal ?? NEVER;
  const runtime = new ServiceRuntime(concurrency, { metrics, log, config: source, ...(onFatal && { onFatal }) });
  const shutdown = runtime.watch('shutdown', false);
  const current = runtime.watch('config', config);
  const follower = new ConfigFollower({
    source,
    config: current,
    shutdown,
    apply: async (next, within) => {
      upkeep.follow();
      await volumes.follow(next, within);
    },
    onProblem: (error) => log.error({ err: error }, 'failed to apply the configuration; correct the cause and reload'),
  });
  const workGet = runtime.workQueue('work_get');
  const workPut = runtime.workQueue('work_put');
  const events = runtime.broadcast<EngineEvent>('events');
  const eventLog = events.subscribe('event_log');
  const hot = new HotObjects(config.storage.fast_path ? config.storage.cache_bytes : 0);
  const count = eventCounter(metrics);
  const publish = (event: EngineEvent): void => {
    // What must not be missed is done here; subscribers may lag.
    count(event);
    if (event.kind === 'removed' || event.kind === 'retyped') hot.forget(event.address);
    if (event.kind === 'damaged') {
      const hash = Buffer.from(event.record.id_hex, 'hex');
      hot.forget(formatAddress(hash));
      engine.store.forget(hash);
    }
    events.publish(event);
  };
  const engine = await openEngine({ config, publish, signal, fs });
  const auth = await openServiceAuth({ audience: 'storage', config, dir: engine.dir, log, metrics, signal });
  const { keys } = auth;
  measureEngine(metrics, engine, hot);
  const { volumes } = engine;
  const foreground = new Foreground();
  const meters = repairMeters(metrics);
  const queue = runtime.own('repair', (capacity) => new RepairQueue({ capacity, onSkipped: meters.onSkipped }));
  const upkeep = new Upkeep({
    volumes,
    queue,
    source: current,
    isStopping: () => shutdown.value,
    latencies_ms: () => foreground.takeP95s_ms(),
    onWaited: meters.onWaited,
    broken: () => engine.compactor.broken,
    journals: journalScrubOf(engine),
    log,
  });
  measureUpkeep(metrics, upkeep);
  const tasks = new AdminTasks<TaskKind>((kind, run) => runtime.run(TASK_KINDS[kind], ({ stopping }) => run(stopping)));
  const compaction = compactionOf(engine);

  const ingress = await createIngress({
    service: 'storage',
    version: VERSION,
    about: () => ({ capability_keys: auth.origin }),
    metrics,
    counters: runtime,
    deadlines: runtime,
    config: ingressConfigOf(config),
    routes: routes({
      ...engine,
      decisions: new VolumeDecisions(volumes, config),
      tasks,
      compaction,
      upkeep,
      foreground,
      guardReads: config.auth.reads,
      meter: durabilityMeter(volumes, config),
      putStep: (parent) => runtime.deadline('put', { parent }),
      uploadStep: () => runtime.deadline('put'),
      onOpened: (object) => hot.remember(object),
    }),
    lanes: { get: workGet, put: patientQueue(workPut, () => runtime.deadline('wait')) },
    access: new Checker({ audience: 'storage', keys, epochs: auth.epochs }),
    fast: {
      route: 'GET /o/:addr',
      lookup: (target) => hot.lookup(target),
      openNow: (target) => hot.openNow(target, engine.store),
    },
    readiness: readinessOf(volumes, upkeep, [workGet, workPut], auth),
    health: () => {
      const { fatal } = runtime.supervisor;
      return fatal === undefined ? { ok: true } : { ok: false, details: { task: fatal.kind } };
    },
    log,
  });

  runtime.spawn('get_pool', (task) => serve(workGet, task));
  runtime.spawn('put_pool', (task) => serve(workPut, task));
  runtime.spawn('event_log', async ({ stopping }) => {
    for (;;) {
      const event = await eventLog.recv(stopping);
      if (event === undefined) return;
      log[levelOf(event)](event, event.kind);
    }
  });
  runtime.spawn('volume_watch', ({ stopping }) => volumes.run(stopping));
  runtime.spawn('repair_planner', (task) => upkeep.runPlanner(task));
  runtime.spawn('repair_pool', (task) => upkeep.runWorker(task));
  runtime.spawn('repair_pacing', ({ stopping }) => upkeep.pacing.run(stopping));
  runtime.spawn('scrub', (task) => upkeep.runScrub(task));
  runtime.spawn('striper', (task) => upkeep.runStriper(task));
  runtime.spawn('key_refresh', ({ stopping }) => auth.refreshKeys(() => current.value.auth.keys_refresh, stopping));
  runtime.spawn('revocation_watch', ({ stopping }) => auth.watchRevocations(stopping));
  runtime.spawn('config_watch', ({ stopping }) => follower.run(stopping));
  runtime.spawn('upload_expiry', async ({ stopping }) => {
    for (;;) {
      await sleep(EXPIRE_EVERY_MS, stopping, 'upload_expiry');
      if (shutdown.value) return;
      await engine.uploads.expire().catch((error: unknown) => log.warn({ err: error }, 'uploads were not expired'));
    }
  });
  runtime.spawn('compact_timer', async ({ stopping }) => {
    for (;;) {
      await sleep(current.value.storage.compact_interval * (0.9 + sched.random() / 5), stopping, 'compact_timer');
      if (volumes.incomplete !== undefined) log.warn({ reason: volumes.incomplete }, 'compaction is postponed');
      while (volumes.incomplete !== undefined) await sleep(COMPACT_RETRY_MS, stopping, 'compact_timer');
      if (shutdown.value) return;
      tasks.start('compact', compaction);
    }
  });

  const close = async (): Promise<void> => {
    events.close();
    // What uploads under way have brought is written down before the volume goes.
    await engine.uploads.close();
    await volumes.close();
    await auth.close();
  };
  const abort = async (): Promise<void> => {
    await ingress.close(AbortSignal.abort());
    await runtime.stop({ drain_ms: 0 });
    await close();
  };
  const url = await ingress.listen(starting);
  return {
    url,
    ingress,
    runtime,
    engine,
    upkeep,
    keys,
    async drain() {
      const budget = Deadline.after('drain', current.value.drain_deadline);
      shutdown.set(true);
      ingress.beginDrain();
      const clean = await ingress.drained(budget.signal);
      // The planner stops with the tasks; what it has filed is worked off as far as the time goes.
      upkeep.beginDrain();
      const { aborted } = await runtime.stop({ drain_ms: tasksDrain_ms(budget) });
      const cut = await ingress.close(Deadline.after('drain', FLUSH_MS).signal);
      await close();
      log.info({ clean, tasks_aborted: aborted, requests_cut: cut.aborted }, 'drained');
    },
    abort,
    async reload() {
      using due = Deadline.after('reload', RELOAD_MS, { signal });
      await due.run((within) => follower.reload(within));
      await ingress.reloadTls();
    },
    [Symbol.asyncDispose]: abort,
  };
}

/** The tasks that an operator starts, by what they are called. */
const TASK_KINDS = { compact: 'compaction', repair: 'repair_run', scrub: 'scrub_run' } as const;

function levelOf(event: EngineEvent): 'debug' | 'info' | 'error' {
  if (event.kind === 'removed' || event.kind === 'retyped') return 'debug';
  if (event.kind === 'volume') return event.change === 'lost' ? 'error' : 'info';
  return event.kind === 'state' && event.state.condition === 'ok' ? 'info' : 'error';
}

function compactionOf({ compactor }: Engine): TaskWork {
  return { run: (signal) => compactor.run(signal), progress: () => ({ ...compactor.report }) };
}

async function serve(queue: WorkQueue, { signal, stopping }: TaskContext): Promise<void> {
  // A worker that was ended must not take another job: it could only refuse it.
  const ending = AbortSignal.any([stopping, signal]);
  for (let job = await queue.take(ending); job !== undefined; job = await queue.take(ending)) {
    await job.run(signal);
  }
}
