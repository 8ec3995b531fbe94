/**
 * Wires the tasks, the queues and the routes of storage: this file is its topology.
 *
 *     listener --> work_get(256) --> GET pool --> object store --> volume (log + index)
 *        |    `--> work_put(256) --> PUT pool -->      |   ^
 *        |                                             |   `-- compaction, by hand or by compact_timer
 *        `-- bytes verified in RAM are answered here   `--> events(1024) --> event log
 */
import { Checker, type KeySource } from '@ron/auth';
import { openServiceAuth, type ServiceAuth } from '@ron/auth/service';
import {
  Deadline,
  sched,
  ServiceRuntime,
  sleep,
  type Log,
  type Metrics,
  type Service,
  type TaskContext,
  type WorkQueue,
} from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { createIngress, ingressConfigOf, Readiness, type Ingress } from '@ron/ingress';
import { AdminTasks, type TaskWork } from './admin-tasks.ts';
import { concurrency } from './concurrency.ts';
import type { StorageConfig } from './config.ts';
import { openEngine, type Engine, type EngineEvent, type EngineInit } from './engine.ts';
import { HotObjects } from './hot-objects.ts';
import { eventCounter, measureEngine } from './metrics.ts';
import { patientQueue } from './patience.ts';
import { routes } from './routes.ts';
import { VolumeWatch } from './volume-watch.ts';

export interface StorageInit {
  readonly config: StorageConfig;
  /** The config in force; may change while the service runs. */
  readonly source?: { readonly value: StorageConfig };
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
  readonly keys: KeySource;
}

const VERSION = '0.1.0';
const FLUSH_MS = 500;
const EXPIRE_EVERY_MS = 60_000;

export async function startStorage(init: StorageInit): Promise<Storage> {
  const { config, metrics, log, onFatal, fs } = init;
  const source = init.source ?? { value: config };
  const signal = init.signal ?? new AbortController().signal;
  const runtime = new ServiceRuntime(concurrency, { metrics, log, config: source, ...(onFatal && { onFatal }) });
  const workGet = runtime.workQueue('work_get');
  const workPut = runtime.workQueue('work_put');
  const events = runtime.broadcast<EngineEvent>('events');
  const eventLog = events.subscribe('event_log');
  const hot = new HotObjects(config.storage.fast_path ? config.storage.cache_bytes : 0);
  const count = eventCounter(metrics);
  const publish = (event: EngineEvent): void => {
    // What must not be missed is done here; subscribers may lag.
    count(event);
    if (event.kind === 'removed') hot.forget(event.address);
    if (event.kind === 'damaged') {
      const hash = Buffer.from(event.record.id_hex, 'hex');
      hot.forget(formatAddress(hash));
      engine.store.forget(hash);
    }
    events.publish(event);
  };
  const engine = await openEngine({ config, publish, signal, fs });
  const auth = await openServiceAuth({ audience: 'storage', config, dir: engine.dir, log, signal });
  const { keys } = auth;
  measureEngine(metrics, engine, hot);
  const watch = new VolumeWatch(engine.volume, engine.dir);
  const tasks = new AdminTasks((_kind, run) => runtime.run('compaction', ({ stopping }) => run(stopping)));
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
      tasks,
      compaction,
      guardReads: config.auth.reads,
      durability: () => ({ fsynced: !config.amnesia.enabled, copies: 1, target: 1 }),
      putStep: (parent) => runtime.deadline('put', { parent }),
      uploadStep: () => runtime.deadline('put'),
      // It may have been removed since it was opened; then `forget` has been called already.
      onOpened: (object) => void (engine.store.has(object.address) && hot.remember(object)),
    }),
    lanes: { get: workGet, put: patientQueue(workPut, () => runtime.deadline('wait')) },
    access: new Checker({ audience: 'storage', keys, epochs: auth.epochs }),
    fast: {
      route: 'GET /o/:addr',
      lookup: (target) => hot.lookup(target),
      openNow: (target) => hot.openNow(target, engine.store),
    },
    readiness: readinessOf(watch, [workGet, workPut], auth),
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
  runtime.spawn('volume_watch', ({ stopping }) => watch.run(stopping));
  runtime.spawn('key_refresh', ({ stopping }) => auth.refreshKeys(() => source.value.auth.keys_refresh, stopping));
  runtime.spawn('revocation_watch', ({ stopping }) => auth.watchRevocations(stopping));
  runtime.spawn('upload_expiry', async ({ stopping }) => {
    for (;;) {
      await sleep(EXPIRE_EVERY_MS, stopping, 'upload_expiry');
      await engine.uploads.expire();
    }
  });
  runtime.spawn('compact_timer', async ({ stopping }) => {
    for (;;) {
      await sleep(source.value.storage.compact_interval * (0.9 + sched.random() / 5), stopping, 'compact_timer');
      tasks.start('compact', compaction);
    }
  });

  const close = async (): Promise<void> => {
    events.close();
    // What uploads under way have brought is written down before the volume goes.
    await engine.uploads.close();
    await engine.volume.close();
    await auth.close();
  };
  const abort = async (): Promise<void> => {
    await ingress.close(AbortSignal.abort());
    await runtime.stop({ drain_ms: 0 });
    await close();
  };
  const url = await ingress.listen();
  return {
    url,
    ingress,
    runtime,
    engine,
    keys,
    async drain() {
      const budget = Deadline.after('drain', source.value.drain_deadline);
      ingress.beginDrain();
      const clean = await ingress.drained(budget.signal);
      const { aborted } = await runtime.stop({ drain_ms: Math.max(0, budget.remaining_ms) });
      const cut = await ingress.close(Deadline.after('drain', FLUSH_MS).signal);
      await close();
      log.info({ clean, tasks_aborted: aborted, requests_cut: cut.aborted }, 'drained');
    },
    abort,
    reload: () => ingress.reloadTls(),
    [Symbol.asyncDispose]: abort,
  };
}

function readinessOf(watch: VolumeWatch, queues: readonly WorkQueue[], auth: ServiceAuth): Readiness {
  const readiness = new Readiness();
  readiness.gate('volume', { kind: 'soft', lanes: ['put'], sample: () => watch.problem });
  readiness.gate('overload', {
    kind: 'soft',
    sample: () => (queues.some((queue) => queue.overloaded) ? 'requests wait too long for a worker' : undefined),
  });
  auth.report(readiness);
  return readiness;
}

function levelOf(event: EngineEvent): 'debug' | 'info' | 'error' {
  if (event.kind === 'removed') return 'debug';
  return event.kind === 'state' && event.state.condition === 'ok' ? 'info' : 'error';
}

function compactionOf({ compactor }: Engine): TaskWork {
  return { run: (signal) => compactor.run(signal), progress: () => ({ ...compactor.report }) };
}

async function serve(queue: WorkQueue, { signal, stopping }: TaskContext): Promise<void> {
  // A worker that was ended must not take another job: it could only refuse it.
  const ending = AbortSignal.any([stopping, signal]);
  for (let job = await queue.take(ending); job !== undefined; job = await queue.take(ending)) await job.run(signal);
}
