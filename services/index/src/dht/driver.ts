/**
 * Lookups and publishing in the DHT, on `Peers`.
 *
 * Contract: see `dht.ts`. Lookups include the records that this node keeps for the network. All requests share the
 * breakers, the retry budget and the hedge budget: hedges are at most 5 % of the requests, or 10 in 10 s.
 * Bound: each lookup is bounded (`lookup.ts`); the caller bounds the number of lookups. `PUBLISHES_MAX` publishes continue
 * after their quorum. Overflow: a further one returns only when all of its requests have ended.
 * Cancellation: by the signal of each call; disposing cancels publishes that continue after their quorum.
 */
import { orAborted, RetryBudget, sched } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { PeerBreakers } from './breakers.ts';
import type { Dht, LookupInit, LookupTrace, NameFound, NameLookupInit, ProvidersFound } from './dht.ts';
import { NameResult, ProviderResult } from './lookup/found.ts';
import { nameKey, positionOfKey, providerKey } from './keys.ts';
import { Lookup, type Contribution, type LookupEnd, type LookupEvents, type LookupLimits } from './lookup/lookup.ts';
import type { PeerAnswer, PeerRef, Peers } from './peers.ts';
import { putToQuorum } from './lookup/put.ts';
import { BULK_MS, PeerRequests } from './lookup/requests.ts';
import { CLOSEST } from './lookup/shortlist.ts';
import { Tracer } from './lookup/trace.ts';

export type LookupKind = 'providers' | 'name' | 'closest';

/** Receives figures for metrics. Must not throw. */
export interface DhtObserver {
  onLookup?(kind: LookupKind, took_ms: number, end: LookupEnd): void;
  onHedge?(result: 'started' | 'won' | 'refused'): void;
  onRetry?(op: string, result: 'ok' | 'failed'): void;
}

export interface DhtDriverInit {
  readonly peers: Peers;
  readonly breakers: PeerBreakers;
  /** Read at the start of each lookup, so that a reload applies. */
  readonly limits: () => LookupLimits;
  readonly observer?: DhtObserver;
}

const PUBLISHES_MAX = 64;

interface Query {
  readonly kind: LookupKind;
  readonly key: Uint8Array;
  readonly signal: AbortSignal;
  readonly trace?: LookupTrace | undefined;
  readonly call: (peer: PeerRef, signal: AbortSignal) => Promise<PeerAnswer>;
  readonly onAnswer: (peer: string, answer: PeerAnswer) => Contribution;
  readonly isSatisfied: () => boolean;
}

export class DhtDriver implements Dht, AsyncDisposable {
  readonly #init: DhtDriverInit;
  readonly #requests: PeerRequests;
  readonly #hedges = new RetryBudget({ ratio: 0.05, floor: 10, window_ms: 10_000 });
  readonly #closing = new AbortController();
  readonly #publishes = new Set<Promise<unknown>>();

  constructor(init: DhtDriverInit) {
    this.#init = init;
    const { breakers, observer } = init;
    this.#requests = new PeerRequests({ breakers, onRetry: (op, result) => observer?.onRetry?.(op, result) });
  }

  get problem(): string | undefined {
    return this.known === 0 ? 'no peer of the DHT is known' : undefined;
  }

  get known(): number {
    return this.#init.peers.known;
  }

  async findProviders(address: Address, init: LookupInit): Promise<ProvidersFound> {
    const { peers } = this.#init;
    const key = providerKey(address);
    const result = new ProviderResult(address, peers.self, init);
    const end = await this.#lookup({
      kind: 'providers',
      key,
      signal: init.signal,
      trace: init.trace,
      call: (peer, signal) => peers.getProviders(peer, key, signal),
      onAnswer: (peer, answer) => result.onAnswer(peer, answer),
      isSatisfied: () => result.isSatisfied,
    });
    const { providers } = result;
    return { providers, complete: isComplete(end), empty: result.isUseful ? undefined : emptyReason(end) };
  }

  async findName(signer_hex: string, label: string, init: NameLookupInit): Promise<NameFound> {
    const { peers } = this.#init;
    const key = nameKey(signer_hex, label);
    const result = new NameResult(signer_hex, label);
    const end = await this.#lookup({
      kind: 'name',
      key,
      signal: init.signal,
      trace: init.trace,
      call: (peer, signal) => peers.getValue(peer, key, signal),
      onAnswer: (_peer, answer) => result.onAnswer(answer),
      isSatisfied: () => result.isSatisfied,
    });
    const { values, answers } = result;
    return { values, answers, complete: isComplete(end), empty: answers > 0 ? undefined : emptyReason(end) };
  }

  /** The peers closest to `key` that answered, and all live candidates of the lookup, the closest first. */
  async findClosest(key: Uint8Array, signal: AbortSignal): Promise<Pick<LookupEnd, 'closest' | 'seen' | 'reason'>> {
    const { peers } = this.#init;
    return await this.#lookup({
      kind: 'closest',
      key,
      signal,
      call: async (peer, inner) => ({
        providers: [],
        value: undefined,
        closer: peer.id === peers.self ? [] : await peers.findNode(peer, key, inner),
      }),
      onAnswer: (_peer, { closer }) => ({ isResult: false, closer }),
      isSatisfied: () => false,
    });
  }

  async publishName(
    signer_hex: string,
    label: string,
    value: Uint8Array,
    signal: AbortSignal,
  ): Promise<{ stored: number }> {
    const { peers } = this.#init;
    const key = nameKey(signer_hex, label);
    const { closest } = await this.findClosest(key, signal);
    const own: PeerRef = { id: peers.self, addrs: [] };
    const put = putToQuorum({
      targets: closest,
      signal,
      closing: this.#closing.signal,
      send: (peer, inner) => this.#send(peer, (during) => peers.putValue(peer, key, value, during), inner),
    });
    // A failure of the own disk must not fail the publish: the record itself is in the log.
    await orAborted(peers.putValue(own, key, value, signal), signal).catch(() => undefined);
    this.#track(put.ended);
    await (this.#publishes.size > PUBLISHES_MAX ? put.ended : put.quorum);
    return { stored: put.stored };
  }

  /** Sends many records on one stream, with breaker, time limit and retries. For the sweep. */
  async addProvider(peer: PeerRef, keys: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    const call = (inner: AbortSignal): Promise<void> => this.#init.peers.addProvider(peer, keys, inner);
    await this.#requests.send(peer, call, { signal, onTryFailed: () => undefined, limit_ms: BULK_MS });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#publishes);
  }

  #send<T>(peer: PeerRef, call: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    return this.#requests.send(peer, call, { signal, onTryFailed: () => undefined });
  }

  #track(work: Promise<unknown>): void {
    this.#publishes.add(work);
    void work.finally(() => this.#publishes.delete(work));
  }

  async #lookup(query: Query): Promise<LookupEnd> {
    const { peers, breakers, observer } = this.#init;
    const began_ms = sched.now_ms();
    const tracer = query.trace === undefined ? undefined : new Tracer(query.trace);
    const lookup = new Lookup<PeerAnswer>({
      target: positionOfKey(query.key),
      self: peers.self,
      seeds: await this.#seeds(query),
      limits: this.#init.limits(),
      budget: this.#hedges,
      isOpenTo: (peer) => breakers.state(peer.id) !== 'open',
      readOwn: async (signal) => await query.call({ id: peers.self, addrs: [] }, signal),
      send: async (peer, init) => {
        const onTryFailed = (): void => {
          tracer?.onTryFailed(peer);
          init.onTryFailed();
        };
        // A publish must not wait for peers that stall: it needs the time to store its record.
        const onStalled = query.kind === 'closest' ? undefined : init.onStalled;
        const call = (signal: AbortSignal): Promise<PeerAnswer> => query.call(peer, signal);
        const answer = await this.#requests.send(peer, call, { ...init, onTryFailed, onStalled });
        tracer?.onAnswer(peer, answer);
        return answer;
      },
      onAnswer: query.onAnswer,
      isSatisfied: query.isSatisfied,
      events: eventsFor(tracer, observer),
    });
    const end = await lookup.run(query.signal);
    tracer?.end();
    observer?.onLookup?.(query.kind, sched.now_ms() - began_ms, end);
    return end;
  }

  /** Without a routing table the lookup has no peers, and says so. */
  async #seeds({ key, signal }: Query): Promise<readonly PeerRef[]> {
    return await orAborted(this.#init.peers.closest(key, CLOSEST), signal).catch(() => []);
  }
}

function eventsFor(tracer: Tracer | undefined, observer: DhtObserver | undefined): LookupEvents {
  return {
    onStarted: (peer, wave) => tracer?.onStarted(peer, wave),
    onEnded: (peer, wave, error) => tracer?.onEnded(peer, wave, error),
    onStalled: (peer) => tracer?.onStalled(peer),
    onRefused: (peer) => tracer?.onRefused(peer),
    onHedge: (result) => {
      tracer?.onHedge(result);
      observer?.onHedge?.(result);
    },
  };
}

/** Peers that failed do not matter if as many as store a record have answered. */
function isComplete({ reason, answered, failed, silent, refused, closest }: LookupEnd): boolean {
  if (reason !== 'exhausted') return reason === 'satisfied';
  return closest.length >= CLOSEST || (answered > 0 && failed + silent + refused === 0);
}

/** A peer that was silent may have it, so only the answers of as many peers as store a record prove the contrary. */
function emptyReason({ reason, answered, failed, silent, refused, closest }: LookupEnd): ProvidersFound['empty'] {
  if (reason === 'aborted') return 'deadline';
  if (closest.length >= CLOSEST) return 'none_has_it';
  if (silent > 0) return 'deadline';
  if (answered > 0) return 'none_has_it';
  if (failed > 0) return 'deadline';
  return refused > 0 ? 'breakers_open' : 'no_route';
}
