/** The topology of the example service. */
import { Checker, MemoryKeySource } from '@ron/auth';
import { Readiness, type IngressConfig } from '@ron/ingress';
import { sleep, type TaskContext } from '@ron/kernel';
import { defineService, startService, type OpenContext, type StartInit } from '@ron/service';
import { concurrency } from './concurrency.ts';
import { schema, type NotesConfig } from './config.ts';
import { routes } from './routes.ts';
import { emptyShelf, Shelf } from './shelf.ts';

const TICK_MS = 10;
const DENIED = { ok: false, code: 'unauthorized', reason: 'this service has no key' } as const;

type Context = OpenContext<NotesConfig, typeof concurrency, never, object>;

export const notes = defineService({
  name: 'notes',
  config: schema,
  concurrency,
  async open({ config, current, runtime }: Context) {
    const work = runtime.workQueue('work');
    const shelf = new Shelf(runtime.cell('shelf', emptyShelf()), config.notes.ram_bytes);
    const readiness = new Readiness();
    const gates = {
      replay: readiness.gate('replay', { kind: 'hard', refuses_work: true }),
      brownout: readiness.gate('brownout', { kind: 'soft', lanes: ['bridge'] }),
    };
    let crash = false;
    return {
      routes: routes({ shelf, config: () => current.value, crash: () => (crash = true) }),
      lanes: { get: work, put: work, slow: work },
      access: accessOf(config),
      ...(config.notes.ram_bytes > 0 && {
        fast: { route: 'GET /notes/:name', lookup: (target: string) => shelf.hot(target) },
      }),
      readiness,
      gates: {
        overload: { kind: 'soft', sample: () => (work.overloaded ? 'the work queue is late' : undefined) },
      },
      tasks: {
        pool: (task) => work.serve(task),
        ticker: async ({ signal, stopping }: TaskContext) => {
          const ends = AbortSignal.any([signal, stopping]);
          for (;;) {
            await sleep(TICK_MS, ends, 'ticker');
            if (!crash) continue;
            crash = false;
            throw new Error('told to crash');
          }
        },
      },
      parts: { shelf, gates },
    };
  },
});

function accessOf({ notes: { key_hex } }: NotesConfig) {
  if (key_hex === undefined) return { checkHeaders: () => DENIED };
  const secret = Buffer.from(key_hex, 'hex');
  const keys = new MemoryKeySource({ audience: 'root', keys: [{ key_id: 'k1', secret }] });
  return new Checker({ audience: 'storage', keys });
}

export type Notes = Awaited<ReturnType<typeof startNotes>>;

export function startNotes({ override, ...init }: StartInit<NotesConfig> & { override?: Partial<IngressConfig> }) {
  return startService(notes, { ...init, listener: override });
}
