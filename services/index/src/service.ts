/**
 * The topology of index.
 *
 *     listener --> cache (fast path)
 *        |-------> SingleFlight by key --> work(512) --> resolvers --> cache, database, DHT --> ranking
 *        |                                                   |`--> cache_in(1024) --> cache janitor
 *        |                                                   `---> probes(256) --> prober
 *        `-------> publish(512) --> publisher --> name log --> database --> cache
 */
import { defineService, startService, type OpenContext, type StartInit } from '@ron/service';
import { concurrency } from './concurrency.ts';
import { schema, type IndexConfig } from './config.ts';
import { eventLevel, type IndexEvent } from './events.ts';
import { openParts } from './parts.ts';
import { routes } from './routes.ts';

/** Parts that a program may replace. */
export interface IndexOverrides {}
export type IndexContext = OpenContext<IndexConfig, typeof concurrency, IndexEvent, IndexOverrides>;

export const index = defineService({
  name: 'index',
  config: schema,
  concurrency,
  names: { config: 'cfg_watch', config_watch: 'config_reloader' },
  eventLevel,
  async open(context: IndexContext) {
    const { work } = await openParts(context);
    return {
      routes: routes(),
      lanes: { '/resolve': work, '/providers': work },
      tasks: { resolver: (task) => work.serve(task) },
      parts: {},
    };
  },
});

export type IndexInit = StartInit<IndexConfig> & Partial<IndexOverrides>;
export type Index = Awaited<ReturnType<typeof startIndex>>;

export function startIndex(init: IndexInit) {
  return startService(index, init);
}
