/**
 * Opens the parts of index, in the order in which they depend on each other. They are closed in reverse: [index I-6] lookups and
 * names before the DHT, which they use, and the DHT before the database, to which it writes its peers.
 */
import { join } from 'node:path';
import { isRonError, NEVER, type Cell, type RonError } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { AdminTasks } from '@ron/service';
import { indexMeters, measureParts, newLookupTotals, type IndexMeters, type LookupTotals } from './metrics.ts';
import { openNetwork, type Network } from './network.ts';
import { openNodeKey } from './node-key.ts';
import { openNames, type NameService } from './publish/name-service.ts';
import { Prober } from './probe/prober.ts';
import { BreakerTable, newBreakerEntries } from './resolve/breakers/breaker-table.ts';
import { newCacheMeta } from './resolve/cache/answer-cache.ts';
import type { Lookup } from './resolve/lookup.ts';
import type { Resolution } from './resolve/resolution.ts';
import { Resolving } from './resolve/resolving.ts';
import type { IndexContext } from './service.ts';
import { SqliteStore } from './store/sqlite-store.ts';

export async function openParts(context: IndexContext) {
  const { config, current, runtime, log, metrics, fs, signal, events, resources, openAuth, overrides } = context;
  // [index I-12] Without a directory nothing is written.
  const dir = config.amnesia.enabled ? undefined : config.data_dir!;
  await openAuth({ dir });
  const key = await openNodeKey({ dir, fs, signal });
  const meters = indexMeters(metrics);
  const warn = (message: string, err?: unknown): void => log.warn({ err }, message);
  const opened = resources.use(await openStore(context, dir, () => void names.restore(NEVER).catch(() => undefined)));
  const store = overrides.wrapStore?.(opened) ?? opened;
  const breakers = openBreakers(context);
  const network: Network = resources.use(
    openNetwork({
      current,
      runtime,
      breakers,
      meters,
      key,
      store,
      names: { accepts: (...given) => names.accepts(...given) },
      warn: (error) => warn('the DHT reported a problem', error),
    }),
  );
  const { dht } = network;
  const names: NameService = resources.use(
    await openNames({
      dir,
      fs,
      key,
      store,
      jobs: runtime.mpsc('publish'),
      quotas: () => current.value.quotas,
      invalidate: (targets) => resolving.invalidator.invalidate(targets),
      invalidateAll: () => resolving.invalidator.clear(),
      readQuorum:
        dht && (async (signer, label, within) => (await dht.findName(signer, label, { signal: within })).values),
      onPublished: (record) => network.providing?.published(record),
      onFork: ({ record: { key: signer, label, seq } }) => {
        meters.forks.inc();
        events.publish({ kind: 'name forked', key: signer, label, seq });
      },
      warn,
      signal,
    }),
  );
  const work = runtime.workQueue('work');
  const lookups = runtime.cell('metrics_scratch', newLookupTotals());
  const prober = openProber(context, breakers, (address) => resolving.invalidator.invalidate([address]));
  const resolving: Resolving = resources.use(
    new Resolving({
      work,
      resolvers: config.index.resolvers,
      offers: runtime.mpsc('cache_in'),
      meta: runtime.cell('cache_meta', newCacheMeta(config.cache.entries_max)),
      breakers,
      store,
      names,
      dht: () => dht,
      evidence: prober,
      self: { id: key.peer_id, url: config.index.storage_url },
      settings: () => {
        const { dht: budgets, cache, index } = current.value;
        return { budget_ms: budgets.deadline_ms, ttl_ms: cache.ttl_s * 1000, waiters_max: index.waiters_max };
      },
      onEnd: (lookup, outcome) => observeLookup(meters, lookups, lookup, outcome),
    }),
  );
  runtime.own('resolve_waiters', () => resolving.resolve_waiters);
  runtime.own('providers_waiters', () => resolving.providers_waiters);
  for (const target of names.pins) resolving.cache.pin(target);
  measureParts(metrics, { cache: resolving.cache, breakers, dht: network, lookups, probes: prober });
  const tasks = new AdminTasks<'reindex'>((_kind, run) => runtime.run('reindex', ({ stopping }) => run(stopping)));
  return { dir, key, meters, store, breakers, network, names, work, prober, resolving, tasks };
}

async function openStore(
  { current, log, runtime, overrides }: IndexContext,
  dir: string | undefined,
  onRebuilt: () => void,
) {
  return await SqliteStore.open({
    dir: dir === undefined ? undefined : join(dir, 'db'),
    quotas: () => current.value.quotas,
    call_ms: runtime.deadline('db').budget_ms,
    onRebuilt,
    ...(overrides.store_module && { module: overrides.store_module }),
    onMovedAside: ({ path, why }) => log.error({ path, why }, 'a damaged database was moved aside and is rebuilt'),
  });
}

function openBreakers({ current, runtime, events }: IndexContext): BreakerTable {
  runtime.breakerKind('peers');
  return new BreakerTable({
    entries: runtime.cell('breaker_table', newBreakerEntries()),
    settings: () => current.value.breaker,
    onChange: (target, state) => {
      if (state === 'open') events.publish({ kind: 'breaker opened', target });
    },
  });
}

function openProber(
  { runtime, events }: IndexContext,
  breakers: BreakerTable,
  onChange: (address: Address) => void,
): Prober {
  return new Prober({
    channel: runtime.mpsc('probes'),
    probe_ms: runtime.deadline('probe').budget_ms,
    breakers,
    onChange,
    onProbed: ({ address, provider: { id } }, result) => {
      if (result.kind === 'failed')
        events.publish({ kind: 'provider failed', provider: id, address, problem: result.why });
    },
  });
}

/** Counts every lookup once, at its end. A refused one took no time. */
function observeLookup(
  { resolve_latency }: IndexMeters,
  totals: Cell<LookupTotals>,
  lookup: Lookup,
  outcome: Resolution | RonError,
): void {
  if (!isRonError(outcome, 'busy')) resolve_latency.observe(lookup.took_ms / 1000);
  const result = !isRonError(outcome) ? outcome.source : outcome.code === 'not_found' ? 'none' : 'failed';
  totals.withSync((each) => void (each[result] += 1));
}
