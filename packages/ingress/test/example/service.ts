/** Wires the tasks, the queue and the routes of the example service: this file is its topology. */
import { Checker, MemoryKeySource } from '@ron/auth';
import { ServiceRuntime, serviceOf } from '@ron/service';
import { sleep } from '@ron/kernel';
import type { Log, Metrics } from '@ron/telemetry';
import type { Service } from '@ron/service';
import type { TaskContext } from '@ron/kernel';
import { createIngress, ingressConfigOf, Readiness } from '@ron/ingress';
import type { Gate, Ingress, IngressConfig } from '@ron/ingress';
import { concurrency } from './concurrency.ts';
import type { NotesConfig } from './config.ts';
import { routes } from './routes.ts';
import { emptyShelf, Shelf } from './shelf.ts';

export interface NotesInit {
  readonly config: NotesConfig;
  /** The config in force; may change while the service runs. */
  readonly source?: { readonly value: NotesConfig };
  readonly metrics: Metrics;
  readonly log: Log;
  readonly onFatal?: (kind: string, error: unknown) => void;
  /** Limits that tests set without configuration keys. */
  readonly override?: Partial<IngressConfig>;
}

export interface Notes extends Service, AsyncDisposable {
  readonly ingress: Ingress;
  readonly runtime: ServiceRuntime<typeof concurrency>;
  readonly shelf: Shelf;
  readonly gates: { readonly replay: Gate; readonly brownout: Gate };
}

const TICK_MS = 10;

export async function startNotes(init: NotesInit): Promise<Notes> {
  const { config, metrics, log, onFatal } = init;
  const source = init.source ?? { value: config };
  const runtime = new ServiceRuntime(concurrency, { metrics, log, config: source, ...(onFatal && { onFatal }) });
  const work = runtime.workQueue('work');
  const shelf = new Shelf(runtime.cell('shelf', emptyShelf()), config.notes.ram_bytes);
  const readiness = new Readiness();
  const gates = {
    replay: readiness.gate('replay', { kind: 'hard', refuses_work: true }),
    brownout: readiness.gate('brownout', { kind: 'soft', lanes: ['bridge'] }),
  };
  readiness.gate('overload', { kind: 'soft', sample: () => (work.overloaded ? 'the work queue is late' : undefined) });

  let crash = false;
  const key = config.notes.key_hex;
  const keys =
    key === undefined
      ? undefined
      : new MemoryKeySource({ audience: 'root', keys: [{ key_id: 'k1', secret: Buffer.from(key, 'hex') }] });
  const ingress = await createIngress({
    service: 'notes',
    version: '0.1.0',
    metrics,
    counters: runtime,
    deadlines: runtime,
    config: ingressConfigOf(config, init.override),
    routes: routes({ shelf, config: () => source.value, crash: () => (crash = true) }),
    lanes: { get: work, put: work, slow: work },
    access: keys === undefined ? { checkHeaders: () => DENIED } : new Checker({ audience: 'storage', keys }),
    ...(config.notes.ram_bytes > 0 && {
      fast: { route: 'GET /notes/:name', lookup: (target: string) => shelf.hot(target) },
    }),
    readiness,
    health: () => {
      const { fatal } = runtime.supervisor;
      return fatal === undefined ? { ok: true } : { ok: false, details: { task: fatal.kind } };
    },
    log,
  });

  runtime.spawn('pool', (task) => work.serve(task));
  runtime.spawn('ticker', async ({ signal, stopping }: TaskContext) => {
    const ends = AbortSignal.any([signal, stopping]);
    for (;;) {
      await sleep(TICK_MS, ends, 'ticker');
      if (crash) {
        crash = false;
        throw new Error('crash requested');
      }
    }
  });
  await ingress.listen();
  const service = serviceOf({ ingress, runtime, drain_ms: () => source.value.drain_deadline, log });
  return { ...service, ingress, runtime, shelf, gates };
}

const DENIED = { ok: false, code: 'unauthorized', reason: 'this service has no key' } as const;
