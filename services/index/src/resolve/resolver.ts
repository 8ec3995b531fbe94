/**
 * One lookup: name, database, DHT, ranking. Runs in a worker of the queue `work`.
 *
 * Contract: a name and its address are one job; no job waits for another. The DHT is queried if the database does not suffice,
 * or in mode `full`. The network phase ends `PARTIAL_MS` before the budget, so that the providers found so far are returned
 * with `complete: false`. A target without an answer rejects with the refusal that the outcome table of the route states; a
 * name with a known address is an answer even if no provider is known.
 * Bound: the providers of the DHT (32) and this node. Cancellation: the deadline of the lookup [index I-4] [index I-5]. Calls
 * of the database have deadlines of their own and are not aborted.
 */
import { sched, type BreakerState, type Deadline, type RonError } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { Dht, ProvidersFound } from '../dht/dht.ts';
import type { ProviderClaim } from '../dht/peers.ts';
import type { Names } from '../publish/names.ts';
import type { IndexStore, OwnObject } from '../store/index-store.ts';
import type { BreakerTable } from './breakers/breaker-table.ts';
import { storageTarget, type Evidence, type ProviderRef } from './evidence.ts';
import { localRead } from './local-read.ts';
import type { Lookup } from './lookup.ts';
import { PARTIAL_MS } from './lookups.ts';
import { resolveName, type NamedAddress } from './name-step.ts';
import { rank, type Candidate, type Ranked } from './rank.ts';
import { receiptOf } from './receipt.ts';
import { missing, nothingFound } from './refusals.ts';
import type { Resolution } from './resolution.ts';

export interface ResolverInit {
  readonly store: Pick<IndexStore, 'name' | 'object'>;
  readonly names: Pick<Names, 'keyFor' | 'adopt'>;
  /** Undefined in `standalone`. Until libp2p is loaded it knows no peer. */
  readonly dht: () => Pick<Dht, 'findProviders' | 'findName'> | undefined;
  readonly evidence: Evidence;
  readonly breakers: Pick<BreakerTable, 'state' | 'notClosed'>;
  /** This node as a provider. Without a URL, own objects have no provider. */
  readonly self: { readonly id: string; readonly url: string | undefined };
  /** `cache.ttl_s` in ms. */
  readonly ttl_ms: () => number;
}

interface Found {
  readonly candidates: readonly Candidate[];
  readonly object: OwnObject | undefined;
  /** Undefined if the DHT was not asked. */
  readonly network: ProvidersFound | undefined;
  readonly complete: boolean;
  /** Of the database, if it was passed over. */
  readonly failure: RonError | undefined;
}

export class Resolver {
  readonly #init: ResolverInit;

  constructor(init: ResolverInit) {
    this.#init = init;
  }

  async run(lookup: Lookup, deadline: Deadline): Promise<Resolution> {
    const dht = this.#init.dht();
    // [index I-4] The network phase ends early enough for a partial answer.
    using phase = dht === undefined ? undefined : deadline.child('dht', deadline.remaining_ms - PARTIAL_MS);
    const network = phase ?? deadline;
    lookup.stamp.add(lookup.key);
    const named = await this.#named(lookup, dht, deadline, network);
    const address = named?.address ?? (lookup.target as { readonly address: Address }).address;
    const found = await this.#providers(lookup, address, dht, deadline, network);
    const ranked = rank(found.candidates);
    // An own object is an answer without a provider only while this node has no URL.
    const isKnown = named !== undefined || (found.object !== undefined && found.candidates.length === 0);
    if (ranked.length === 0 && !isKnown) throw refusalOf(found);
    return this.#resolution(lookup, address, named, found, ranked);
  }

  async #named(
    lookup: Lookup,
    dht: Pick<Dht, 'findName'> | undefined,
    deadline: Deadline,
    network: Deadline,
  ): Promise<NamedAddress | undefined> {
    const { target } = lookup;
    if (target.kind === 'address') return undefined;
    const { store, names } = this.#init;
    return resolveName({ store, names, dht }, lookup, target, { deadline, network });
  }

  async #providers(
    lookup: Lookup,
    address: Address,
    dht: Pick<Dht, 'findProviders'> | undefined,
    deadline: Deadline,
    network: Deadline,
  ): Promise<Found> {
    // Before the read: an announcement that is committed later outdates this lookup.
    lookup.stamp.add(address);
    const { store } = this.#init;
    const local = await localRead(lookup, deadline, dht !== undefined, () => store.object(address));
    const { value: object, complete, failure } = local;
    const own = this.#own(address, object);
    if (own !== undefined && own.proof !== 'failed') lookup.onFound(own as Ranked);
    const candidates = own === undefined ? [] : [own];
    const suffices = lookup.mode === 'usual' && own !== undefined && own.proof !== 'failed';
    if (dht === undefined || suffices) return { candidates, object, network: undefined, complete, failure };
    const found = await this.#network(lookup, address, dht, network);
    for (const claim of found.providers) {
      const candidate = this.#candidate(address, claim, null);
      if (candidate !== undefined && candidate.id !== own?.id) candidates.push(candidate);
    }
    return { candidates, object, network: found, complete: complete && found.complete, failure };
  }

  #network(
    lookup: Lookup,
    address: Address,
    dht: Pick<Dht, 'findProviders'>,
    network: Deadline,
  ): Promise<ProvidersFound> {
    const { evidence } = this.#init;
    return dht.findProviders(address, {
      signal: network.signal,
      trace: lookup.trace,
      verdict: (of, { id, url }) => (url === undefined ? undefined : evidence.verdict(of, { id, url })),
      onProvider: (claim) => {
        const candidate = this.#candidate(address, claim, null);
        if (candidate !== undefined && candidate.proof !== 'failed') lookup.onFound(candidate as Ranked);
      },
    });
  }

  #own(address: Address, object: OwnObject | undefined): Candidate | undefined {
    if (object === undefined) return undefined;
    const age_s = Math.max(0, Math.floor((sched.wall_ms() - object.announced_ms) / 1000));
    return this.#candidate(address, this.#init.self, age_s);
  }

  /** Undefined for a provider that announced no URL. */
  #candidate(address: Address, { id, url }: ProviderClaim, age_s: number | null): Candidate | undefined {
    if (url === undefined) return undefined;
    const { evidence, breakers } = this.#init;
    const provider: ProviderRef = { id, url };
    const proof = evidence.verdict(address, provider) ?? 'unproven';
    // The storage of a node may fail while it answers as a peer, and the other way round.
    const breaker = worse(breakers.state(id), breakers.state(storageTarget(id)));
    return { id, url, proof, age_s, latency_ms: evidence.latency_ms(id) ?? null, breaker };
  }

  #resolution(
    lookup: Lookup,
    address: Address,
    named: NamedAddress | undefined,
    found: Found,
    ranked: readonly Ranked[],
  ): Resolution {
    const { evidence, breakers, ttl_ms } = this.#init;
    // The prober knows which proofs are due.
    for (const { id, url } of ranked) evidence.request(address, { id, url }, lookup.mode === 'full');
    const source = named?.source === 'dht' || found.network !== undefined ? 'dht' : 'db';
    return {
      key: lookup.key,
      address,
      size: found.object?.size ?? evidence.size(address) ?? null,
      media_type: found.object?.media_type ?? null,
      providers: ranked,
      name: named?.name,
      source,
      complete: found.complete && (named?.complete ?? true),
      isFull: lookup.mode === 'full',
      born_ms: sched.wall_ms(),
      ttl_ms: Math.min(ttl_ms(), named?.ttl_ms ?? Infinity),
      not_after_ms: named?.not_after_ms ?? Infinity,
      receipt: receiptOf(lookup, { source, candidates: found.candidates, ranked, breakers: breakers.notClosed() }),
    };
  }
}

const SEVERITY: Readonly<Record<BreakerState, number>> = { closed: 0, half_open: 1, open: 2 };

function worse(one: BreakerState, other: BreakerState): BreakerState {
  return SEVERITY[one] > SEVERITY[other] ? one : other;
}

/** All providers failed their proof, or none announced a URL. */
function refusalOf({ network, complete, failure }: Found): Error {
  if (network === undefined) return missing('none_has_it', complete);
  return nothingFound(network.empty ?? 'none_has_it', complete, 'none_has_it', failure);
}
