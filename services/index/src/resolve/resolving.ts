/** The resolving parts of the service, opened together: cache, lookups, breakers, pins. */
import { Deadline, NEVER, type Cell, type Mpsc, type WorkQueue } from '@ron/kernel';
import { checkTarget, type Target } from '@ron/proto';
import type { FastSource } from '@ron/ingress';
import { Waiters } from '@ron/service';
import type { Dht } from '../dht/dht.ts';
import type { Names } from '../publish/names.ts';
import type { IndexStore } from '../store/index-store.ts';
import type { BreakerTable } from './breakers/breaker-table.ts';
import { AnswerCache, type CacheMeta, type Offer } from './cache/answer-cache.ts';
import { Versions } from './cache/versions.ts';
import type { Evidence } from './evidence.ts';
import type { Lookup } from './lookup.ts';
import { Lookups, type LookupsInit } from './lookups.ts';
import { Resolver } from './resolver.ts';

/** The caller whose turn in the queue refreshes and warm-ups take. */
const INTERNAL = 'internal';
/** Lookups whose job has ended but whose callers were not answered yet. */
const RUNS_SLACK = 64;
const WARMUP_AT_ONCE = 4;
const RESOLVE_PATH = '/resolve/';

/** The configuration keys that lookups read, at each use. */
export interface ResolvingSettings {
  readonly budget_ms: number;
  readonly ttl_ms: number;
  readonly waiters_max: number;
}

export interface ResolvingInit {
  readonly work: WorkQueue;
  readonly resolvers: number;
  readonly offers: Mpsc<Offer>;
  readonly meta: Cell<CacheMeta>;
  readonly breakers: BreakerTable;
  readonly store: Pick<IndexStore, 'name' | 'object'>;
  readonly names: Pick<Names, 'keyFor' | 'adopt'>;
  /** Undefined in `standalone`. Until libp2p is loaded it knows no peer. */
  readonly dht: () => Pick<Dht, 'findProviders' | 'findName'> | undefined;
  readonly evidence: Evidence;
  /** This node as a provider. */
  readonly self: { readonly id: string; readonly url: string | undefined };
  readonly settings: () => ResolvingSettings;
  readonly onEnd?: LookupsInit['onEnd'];
}

/** How changes outdate answers. Synchronous: call it after the commit and before the acknowledgement. */
export interface Invalidator {
  /** Targets: `b3:<hex>`, `name:<label>`, `name:<label>@<key>`. An address also outdates the names that lead to it. */
  invalidate(targets: Iterable<string>): void;
  /** For changes of the trust list and a reindex. */
  clear(): void;
}

export class Resolving implements AsyncDisposable {
  readonly cache: AnswerCache;
  readonly lookups: Lookups;
  readonly breakers: BreakerTable;
  readonly invalidator: Invalidator;
  /** For `GET /resolve/*`. */
  readonly fast: FastSource;
  readonly resolve_waiters: Waiters;
  readonly providers_waiters: Waiters;
  readonly #init: ResolvingInit;

  constructor(init: ResolvingInit) {
    const versions = new Versions();
    const { meta, offers, settings, work } = init;
    this.#init = init;
    this.breakers = init.breakers;
    this.cache = new AnswerCache({ meta, offers, versions, refresh: (key) => this.#refresh(key) });
    const resolver = new Resolver({ ...init, ttl_ms: () => settings().ttl_ms });
    this.lookups = new Lookups({
      work,
      cache: this.cache,
      versions,
      resolve: (lookup: Lookup, deadline: Deadline) => resolver.run(lookup, deadline),
      budget_ms: () => settings().budget_ms,
      runs_max: work.capacity + init.resolvers + RUNS_SLACK,
      ...(init.onEnd !== undefined && { onEnd: init.onEnd }),
    });
    this.invalidator = this.cache;
    this.fast = { route: 'GET /resolve/*', lookup: (target) => this.#fast(target) };
    this.resolve_waiters = new Waiters('/resolve', () => settings().waiters_max);
    this.providers_waiters = new Waiters('/providers', () => settings().waiters_max);
  }

  /** Whether the database knows all providers that a lookup can find. */
  get isStandalone(): boolean {
    return this.#init.dht() === undefined;
  }

  #fast(target: string): ReturnType<FastSource['lookup']> {
    if (!target.startsWith(RESOLVE_PATH)) return undefined;
    return this.cache.get(target.slice(RESOLVE_PATH.length))?.fast;
  }

  /** The task `warmup`: resolves the keys once, a few at a time. Keys that cannot be resolved are left out. */
  async warmUp(keys: readonly string[], stopping: AbortSignal): Promise<void> {
    const left = keys.values();
    const worker = async (): Promise<void> => {
      for (const key of left) {
        if (stopping.aborted) return;
        await this.#lookUp(key, stopping);
      }
    };
    await Promise.all(Array.from({ length: WARMUP_AT_ONCE }, worker));
  }

  /** For a pinned key. Joins the lookup that is under way, if any. */
  #refresh(key: string): void {
    // It ends by its deadline and never rejects.
    void this.#lookUp(key, NEVER);
  }

  async #lookUp(key: string, signal: AbortSignal): Promise<void> {
    const parsed = checkTarget(key);
    if (!parsed.ok) return;
    using deadline = Deadline.after('refresh', this.#init.settings().budget_ms, { signal });
    await this.#found(parsed.target, deadline);
  }

  async #found(target: Target, deadline: Deadline): Promise<void> {
    await this.lookups.find({ lane: '/resolve', target, mode: 'usual', deadline, ip: INTERNAL }).catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.lookups[Symbol.asyncDispose]();
  }
}
