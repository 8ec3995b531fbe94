/**
 * The results of probes: verdicts by address and provider, sizes by address, latencies by provider.
 *
 * Contract: `proven` holds for PROVEN_MS. `failed` holds for FAILED_MS, and for ABSENT_MS if the provider only lacks the
 * object, so that a node can recover. A size is a fact about the address and does not expire.
 * Bound: ADDRESSES_MAX addresses with PROVIDERS_MAX providers each, LATENCIES_MAX latencies. Overflow: the cache evicts; of the
 * providers of one address the oldest verdict goes.
 */
import { Cache } from '@ron/cache';
import { sched } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { ProviderRef } from '../resolve/evidence.ts';
import type { ProbeFailure } from './prove.ts';

export const PROVEN_MS = 10 * 60_000;
export const FAILED_MS = 10 * 60_000;
export const ABSENT_MS = 60_000;
/** A provider may lie after its proof, so the next lookup requests another one: soon if a caller wants a fresh answer. */
export const RENEW_MS = 30_000;
export const RENEW_FRESH_MS = 1000;
const ADDRESSES_MAX = 50_000;
const PROVIDERS_MAX = 32;
const LATENCIES_MAX = 4096;
/** The weight of the newest latency. */
const LATENCY_SHARE = 0.3;

export type Verdict = 'proven' | 'failed';

interface Entry {
  readonly verdict: Verdict;
  readonly until_ms: number;
}

interface Facts {
  size: number | undefined;
  /** The oldest first. */
  readonly byProvider: Map<string, Entry>;
}

export class Verdicts {
  readonly #facts = new Cache<Facts>({ entries_max: ADDRESSES_MAX });
  readonly #latencies = new Cache<number>({ entries_max: LATENCIES_MAX });

  verdict(address: Address, provider: ProviderRef): Verdict | undefined {
    return this.#fresh(address, provider)?.verdict;
  }

  /** Whether a probe would add something: there is no verdict, or the proof is older than `RENEW_MS` or `RENEW_FRESH_MS`. */
  isDue(address: Address, provider: ProviderRef, isFresh = false): boolean {
    const entry = this.#fresh(address, provider);
    if (entry === undefined) return true;
    const age_ms = PROVEN_MS - (entry.until_ms - sched.now_ms());
    return entry.verdict === 'proven' && age_ms > (isFresh ? RENEW_FRESH_MS : RENEW_MS);
  }

  size(address: Address): number | undefined {
    return this.#facts.get(address)?.size;
  }

  latency_ms(id: string): number | undefined {
    return this.#latencies.get(id);
  }

  /** Returns whether the verdict differs from the former one. */
  setProven(address: Address, provider: ProviderRef, size: number, latency_ms: number): boolean {
    const facts = this.#of(address);
    facts.size = size;
    const usual_ms = this.#latencies.peek(provider.id) ?? latency_ms;
    this.#latencies.set(provider.id, usual_ms + LATENCY_SHARE * (latency_ms - usual_ms), 0);
    return this.#set(facts, address, provider, { verdict: 'proven', until_ms: sched.now_ms() + PROVEN_MS });
  }

  setFailed(address: Address, provider: ProviderRef, why: ProbeFailure): boolean {
    const until_ms = sched.now_ms() + (why === 'absent' ? ABSENT_MS : FAILED_MS);
    return this.#set(this.#of(address), address, provider, { verdict: 'failed', until_ms });
  }

  /** After a provider announced the object again. */
  forgetFailures(address: Address): void {
    const verdicts = this.#facts.peek(address)?.byProvider;
    if (verdicts === undefined) return;
    for (const [key, { verdict }] of verdicts) if (verdict === 'failed') verdicts.delete(key);
  }

  #fresh(address: Address, provider: ProviderRef): Entry | undefined {
    const entry = this.#facts.get(address)?.byProvider.get(keyOf(provider));
    return entry !== undefined && entry.until_ms > sched.now_ms() ? entry : undefined;
  }

  #set(facts: Facts, address: Address, provider: ProviderRef, entry: Entry): boolean {
    const { byProvider } = facts;
    const key = keyOf(provider);
    const former = this.verdict(address, provider);
    byProvider.delete(key);
    if (byProvider.size >= PROVIDERS_MAX) byProvider.delete(byProvider.keys().next().value!);
    byProvider.set(key, entry);
    return former !== entry.verdict;
  }

  #of(address: Address): Facts {
    const known = this.#facts.get(address);
    if (known !== undefined) return known;
    const facts: Facts = { size: undefined, byProvider: new Map() };
    this.#facts.set(address, facts, 0);
    return facts;
  }
}

/** A provider with another URL has to prove the object again. */
const keyOf = ({ id, url }: ProviderRef): string => `${id} ${url}`;
