/**
 * The topology of the smallest service, the template for a new one.
 *
 *     listener --> work(8) --> pool --> greeting
 *                                `--> events(1024) --> event_log
 */
import { defineService, startService, type OpenContext, type StartInit } from '@ron/service';
import { concurrency } from './concurrency.ts';
import { schema, type SmallestConfig } from './config.ts';
import { routes } from './routes.ts';

/** A part of the domain that tests replace. */
export interface Store extends AsyncDisposable {
  readonly problem: string | undefined;
}

interface Greeted {
  readonly kind: 'greeted';
}
type Context = OpenContext<SmallestConfig, typeof concurrency, Greeted, { openStore: () => Promise<Store> }>;

const openMemory = async (): Promise<Store> => ({ problem: undefined, [Symbol.asyncDispose]: async () => undefined });

export const smallest = defineService({
  name: 'index',
  config: schema,
  concurrency,
  names: { config: 'cfg_watch', config_watch: 'config_reloader' },
  eventLevel: () => 'debug',
  async open({ current, runtime, events, resources, openAuth, overrides }: Context) {
    await openAuth({ dir: undefined });
    const { openStore = openMemory } = overrides;
    const store = resources.use(await openStore());
    const work = runtime.workQueue('work');
    return {
      routes: routes({
        greeting: () => current.value.index.greeting,
        onGreeted: () => events.publish({ kind: 'greeted' }),
      }),
      lanes: { get: work },
      gates: { store: { kind: 'hard', sample: () => store.problem } },
      tasks: { pool: (task) => work.serve(task) },
      parts: { store },
    };
  },
});

export function startSmallest(init: StartInit<SmallestConfig>) {
  return startService(smallest, init);
}
