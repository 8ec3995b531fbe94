/** The resolving parts on a store in memory, for tests: every answer of the database and the DHT is under the test's control. */
import { createHash } from 'node:crypto';
import { Cell, Mpsc, WorkQueue } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { encodeNameRecord, type NameRecord } from '@ron/proto/names';
import type { Dht, ProvidersFound } from '../../dht/dht.ts';
import type { OwnObject, StoredName } from '../../store/index-store.ts';
import { BreakerTable, newBreakerEntries } from '../breakers/breaker-table.ts';
import { newCacheMeta, type Offer } from '../cache/answer-cache.ts';
import type { Evidence } from '../evidence.ts';
import { Resolving, type ResolvingInit } from '../resolving.ts';

export const SELF = { id: '12D3KooWSelf', url: 'http://127.0.0.1:7101' };
export const KEY = 'aa'.repeat(32);
export const OTHER_KEY = 'bb'.repeat(32);

export function addressOf(text: string): Address {
  return formatAddress(createHash('sha256').update(text).digest());
}

export function objectOf(address: Address, announced_ms: number): OwnObject {
  return { address, size: 5, media_type: 'text/plain', announced_ms };
}

/** A stored record; the resolver does not verify it again. */
export function nameOf(fields: Partial<NameRecord> & Pick<NameRecord, 'label'>, isOwn = true): StoredName {
  const record = { key: KEY, seq: 1, not_after: 4_000_000_000, ttl_s: 60, ...fields };
  const bytes = encodeNameRecord(record);
  const hash = createHash('sha256').update(bytes).digest();
  const { key, label, seq, not_after } = record;
  return {
    key,
    label,
    seq,
    not_after,
    record: bytes,
    signature: new Uint8Array(64),
    hash,
    rival: undefined,
    dropped: 0,
    isOwn,
  };
}

/** The tables that lookups read. `gate` delays or fails the answer of each read. */
export class MemoryIndex {
  readonly objects = new Map<Address, OwnObject>();
  readonly stored = new Map<string, StoredName>();
  gate: () => Promise<void> = async () => undefined;
  /** Delays the verification of records from the network. */
  adopt_gate: () => Promise<void> = async () => undefined;
  reads = 0;

  setName(name: StoredName): void {
    this.stored.set(`${name.label}@${name.key}`, name);
  }

  async object(address: Address): Promise<OwnObject | undefined> {
    this.reads += 1;
    const object = this.objects.get(address);
    await this.gate();
    return object;
  }

  async name(key: string, label: string): Promise<StoredName | undefined> {
    this.reads += 1;
    const name = this.stored.get(`${label}@${key}`);
    await this.gate();
    return name;
  }
}

/** A DHT with one answer for all lookups. */
export function dhtOf(found: Partial<ProvidersFound>): Pick<Dht, 'findProviders' | 'findName'> {
  return {
    findProviders: async () => ({ providers: [], complete: true, empty: undefined, ...found }),
    findName: async () => ({ values: [], answers: 0, complete: true, empty: undefined, ...found }),
  };
}

export class MemoryEvidence implements Evidence {
  readonly verdicts = new Map<string, 'proven' | 'failed'>();
  readonly requested: string[] = [];
  readonly latencies = new Map<string, number>();
  verdict(_address: Address, { id }: { readonly id: string }): 'proven' | 'failed' | undefined {
    return this.verdicts.get(id);
  }
  size(): undefined {
    return undefined;
  }
  latency_ms(id: string): number | undefined {
    return this.latencies.get(id);
  }
  request(_address: Address, { id }: { readonly id: string }): void {
    this.requested.push(id);
  }
}

export interface OpenedInit extends Partial<Pick<ResolvingInit, 'dht' | 'evidence' | 'onEnd' | 'self'>> {
  readonly capacity?: number;
  readonly workers?: number;
  readonly entries_max?: number;
  readonly settings?: Partial<ReturnType<ResolvingInit['settings']>>;
}

/** Opens everything, with the workers and the cache janitor running. Disposal ends them. */
export function openResolving(init: OpenedInit = {}) {
  const { capacity = 512, workers = 4, entries_max = 1000, settings = {}, ...rest } = init;
  const store = new MemoryIndex();
  const evidence = new MemoryEvidence();
  const lanes = ['/resolve', '/providers'].map((name) => ({ name, reserve_share: 1 / 8, key: 'address' }));
  const work = new WorkQueue('work', { capacity, lanes, budget_ms: 1200 });
  const breakers = new BreakerTable({
    entries: new Cell('breaker_table', 3, newBreakerEntries()),
    settings: () => ({ error_window_s: 10, trip_threshold: 0.5, cooldown_s: 5, half_open_probes: 2 }),
  });
  const resolving = new Resolving({
    work,
    resolvers: workers,
    offers: new Mpsc<Offer>('cache_in', 1024),
    meta: new Cell('cache_meta', 2, newCacheMeta(entries_max)),
    breakers,
    store,
    names: {
      keyFor: () => KEY,
      adopt: async (key, label) => {
        await store.adopt_gate();
        return store.stored.get(`${label}@${key}`);
      },
    },
    dht: () => undefined,
    evidence,
    self: SELF,
    settings: () => ({ budget_ms: 1200, ttl_ms: 10_000, waiters_max: 1024, ...settings }),
    ...rest,
  });
  const stop = new AbortController();
  const tasks: Promise<unknown>[] = [resolving.cache.run(stop.signal)];
  for (let at = 0; at < workers; at += 1) tasks.push(work.serve({ signal: stop.signal, stopping: stop.signal }));
  return {
    resolving,
    store,
    evidence,
    work,
    breakers,
    async [Symbol.asyncDispose](): Promise<void> {
      stop.abort();
      await resolving[Symbol.asyncDispose]();
      await Promise.allSettled(tasks);
    },
  };
}
