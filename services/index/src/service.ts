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
import { runJanitor } from './janitor.ts';
import { openParts } from './parts.ts';
import { gatesOf } from './readiness.ts';
import { routes } from './routes.ts';
import type { IndexStore } from './store/index-store.ts';

/** Parts that a program may replace. */
export interface IndexOverrides {
  /** Receives the opened database and returns the one that is used. */
  readonly wrapStore: (store: IndexStore) => IndexStore;
  /** The module of the database's threads. */
  readonly store_module: URL;
}
export type IndexContext = OpenContext<IndexConfig, typeof concurrency, IndexEvent, IndexOverrides>;

export const index = defineService({
  name: 'index',
  config: schema,
  concurrency,
  names: { config: 'cfg_watch', config_watch: 'config_reloader' },
  eventLevel,
  async open(context: IndexContext) {
    const { config, current, events, log, configProblem } = context;
    const parts = await openParts(context);
    const { store, names, network, work, resolving, prober, breakers, meters, tasks } = parts;
    const { cache, invalidator } = resolving;
    const onProblem = (err: unknown): void => log.warn({ err }, 'failed to purge expired rows');
    return {
      routes: routes({
        resolving,
        onDeadlineHit: () => meters.resolve_deadline_hit.inc(),
        store,
        names,
        log: () => names.log,
        tasks,
        dhtStatus: {
          mode: config.dht.mode,
          peer_id: parts.key.peer_id,
          bootstrap: config.dht.bootstrap,
          storage_url: config.index.storage_url,
          peers: network.peers,
          breakers: () => breakers.notClosed(),
        },
        onAnnounced: ({ changed, added }) => {
          for (const address of changed) prober.forgetFailures(address);
          invalidator.invalidate(changed);
          network.providing?.announced(added);
        },
        onUncertain: () => invalidator.clear(),
        cache: {
          setPinned: (target, isPinned) => (isPinned ? cache.pin(target) : cache.unpin(target)),
          invalidate: (targets) => invalidator.invalidate(targets),
          clear: () => invalidator.clear(),
        },
      }),
      fast: resolving.fast,
      gates: gatesOf({ store, names, dht: network, work, events, configProblem }),
      tasks: {
        resolver: (task) => work.serve(task),
        publisher: ({ stopping }) => names.run(stopping),
        cache_janitor: ({ stopping }) => runJanitor({ current, cache, store, onProblem }, stopping),
        breaker_janitor: ({ stopping }) => breakers.run(stopping),
        dht: ({ stopping }) => network.run(stopping),
        provider_sweep: ({ stopping }) => network.provide(stopping),
        prober: (task) => prober.run(task),
        warmup: ({ stopping }) => resolving.warmUp(config.cache.warmup_keys, stopping),
      },
      // The name log signs a checkpoint, the DHT flushes its peers, the database its last writes.
      close_ms: 6000,
      parts: { store, names, resolving, network, node_key: parts.key },
    };
  },
});

export type IndexInit = StartInit<IndexConfig> & Partial<IndexOverrides>;
export type Index = Awaited<ReturnType<typeof startIndex>>;

export function startIndex(init: IndexInit) {
  return startService(index, init);
}
