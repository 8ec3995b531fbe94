/** Names with their log and database, without the rest of the service. */
import { Mpsc } from '@ron/kernel';
import { realFileSystem } from '@ron/log';
import { openNodeKey, type NodeKey } from '../../src/node-key.ts';
import { openNames, type NameService, type NamesInit } from '../../src/publish/name-service.ts';
import type { Caller, Published } from '../../src/publish/names.ts';
import type { Job } from '../../src/publish/publisher.ts';
import type { StoredRecord } from '../../src/store/index-store.ts';
import { SqliteStore, type SqliteStoreInit } from '../../src/store/sqlite-store.ts';

export const { signal } = new AbortController();
export const ALICE: Caller = { subject: 'alice', capability_id: 'cap-a' };
export const QUOTAS = { providers_max: 1000, providers_per_subject: 1000, names_seen: 1000 };

export interface NamesNode extends AsyncDisposable {
  readonly key: NodeKey;
  readonly store: SqliteStore;
  readonly names: NameService;
  /** Targets that were invalidated; `*` for all. */
  readonly invalidated: string[];
  readonly warnings: string[];
  readonly forks: string[];
  /** The channel of the publisher. */
  readonly jobs: Mpsc<Job>;
  publish(record: StoredRecord, caller?: Caller): Promise<Published>;
}

export interface NodeInit extends Partial<NamesInit> {
  readonly storeInit?: Partial<SqliteStoreInit>;
  /** Whether the publisher runs. Default true. */
  readonly isRunning?: boolean;
}

/** In `dir`; in memory without one. */
export async function openNode(dir: string | undefined, init: NodeInit = {}): Promise<NamesNode> {
  const stop = new AbortController();
  const [invalidated, warnings, forks]: [string[], string[], string[]] = [[], [], []];
  const fs = realFileSystem;
  const key = await openNodeKey({ dir, fs, signal });
  const jobs = new Mpsc<Job>('publish', 512);
  const store = await SqliteStore.open({
    dir,
    quotas: () => QUOTAS,
    onRebuilt: () => void names.restore(signal).catch(() => undefined),
    ...init.storeInit,
  });
  const names = await openNames({
    dir,
    fs,
    key,
    store,
    jobs,
    quotas: () => ({ names_per_key: 1000, publish_per_min: 100_000 }),
    invalidate: (targets) => invalidated.push(...targets),
    invalidateAll: () => invalidated.push('*'),
    onFork: ({ record }) => forks.push(record.label),
    warn: (message) => warnings.push(message),
    signal,
    ...init,
  }).catch(async (error: unknown) => {
    await store[Symbol.asyncDispose]();
    throw error;
  });
  const task = init.isRunning === false ? undefined : names.run(stop.signal).catch(() => undefined);
  return {
    key,
    store,
    names,
    invalidated,
    warnings,
    forks,
    jobs,
    publish: ({ record, signature }, caller = ALICE) => names.publish(record, signature, caller, signal),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await task;
      await names[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
    },
  };
}
