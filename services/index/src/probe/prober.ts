/**
 * Verifies the claims of providers, one random group of an object at a time.
 *
 * Contract: as `Evidence`. A probe sets the verdict of its provider for its object; `onChange` is called if that changed, so that
 * answers with the old order are dropped. An unreachable provider keeps its verdict until it expires, and its breaker counts
 * the failure. A proven provider is probed again by the next request after `RENEW_MS`, so that one which lies later is found.
 * Bound: `channel` (drop oldest), `PROBES_PER_S` probes, `AT_ONCE_MAX` at once, `probe_ms` each. One request for an object
 * and provider is under way at a time.
 * Cancellation: when the task stops, probes under way end with their deadline or the signal of the task.
 *
 *     request --> probes(256) --> 10/s --> prove --> verdicts --> onChange
 */
import { Deadline, TokenBucket, type Mpsc, type TaskContext } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { PeerBreakers } from '../dht/breakers.ts';
import { storageTarget, type Evidence, type ProviderRef } from '../resolve/evidence.ts';
import type { ProbeFailure, ProbeResult } from './prove.ts';
import { Verdicts, type Verdict } from './verdicts.ts';

const PROBES_PER_S = 10;
const AT_ONCE_MAX = 16;

export interface ProbeRequest {
  readonly address: Address;
  readonly provider: ProviderRef;
}

export interface ProberInit {
  readonly channel: Mpsc<ProbeRequest>;
  /** The time of one probe. */
  readonly probe_ms: number;
  /** Breakers by `storageTarget`. */
  readonly breakers: PeerBreakers;
  /** Called after a verdict changed. Must not throw. */
  readonly onChange: (address: Address) => void;
  /** Called after each probe, for events and metrics. Must not throw. */
  readonly onProbed?: (request: ProbeRequest, result: ProbeResult) => void;
  /** Probes per second. Default 10. */
  readonly probes_per_s?: number;
}

export interface ProbeTotals {
  proven: number;
  unreachable: number;
  /** Not sent: the breaker was open. */
  skipped: number;
  readonly failed: Record<ProbeFailure, number>;
}

export class Prober implements Evidence {
  readonly #init: ProberInit;
  readonly #verdicts = new Verdicts();
  readonly #bucket: TokenBucket;
  /** Requests in the channel and probes under way. */
  readonly #pending = new Set<string>();
  readonly #running = new Set<Promise<void>>();
  readonly totals: ProbeTotals = {
    proven: 0,
    unreachable: 0,
    skipped: 0,
    failed: { absent: 0, refused: 0, false_bytes: 0, url: 0 },
  };

  constructor(init: ProberInit) {
    this.#init = init;
    this.#bucket = new TokenBucket('probes', {
      rate_per_s: init.probes_per_s ?? PROBES_PER_S,
      burst: 1,
      waiters_max: 1,
    });
  }

  verdict(address: Address, provider: ProviderRef): Verdict | undefined {
    return this.#verdicts.verdict(address, provider);
  }

  size(address: Address): number | undefined {
    return this.#verdicts.size(address);
  }

  latency_ms(id: string): number | undefined {
    return this.#verdicts.latency_ms(id);
  }

  /** Call it after an announcement: the provider may have the object now. */
  forgetFailures(address: Address): void {
    this.#verdicts.forgetFailures(address);
  }

  request(address: Address, provider: ProviderRef, isFresh = false): void {
    if (!this.#verdicts.isDue(address, provider, isFresh)) return;
    const { id, url } = provider;
    const request: ProbeRequest = { address, provider: { id, url } };
    const key = keyOf(request);
    if (this.#pending.has(key)) return;
    // [index I-3]
    const { result, dropped } = this.#init.channel.pushDropOldest(request);
    if (result === 'ok') this.#pending.add(key);
    if (dropped !== undefined) this.#pending.delete(keyOf(dropped));
  }

  /** The task `prober`. */
  async run({ signal, stopping }: Pick<TaskContext, 'signal' | 'stopping'>): Promise<void> {
    try {
      for (;;) {
        while (this.#running.size >= AT_ONCE_MAX) await Promise.race(this.#running);
        await this.#bucket.take(1, stopping);
        const request = await this.#init.channel.recv(stopping);
        if (request === undefined) break;
        this.#start(request, signal);
      }
    } catch (error) {
      if (!stopping.aborted) throw error;
    } finally {
      await Promise.all(this.#running);
    }
  }

  #start(request: ProbeRequest, signal: AbortSignal): void {
    const probe = this.#probe(request, signal).finally(() => {
      this.#pending.delete(keyOf(request));
      this.#running.delete(probe);
    });
    this.#running.add(probe);
  }

  /** Never rejects. */
  async #probe(request: ProbeRequest, signal: AbortSignal): Promise<void> {
    const { address, provider } = request;
    // The HTTP client is loaded by the first probe: the service starts faster without it.
    const { prove } = await import('./prove.ts');
    const permit = this.#init.breakers.admit(storageTarget(provider.id));
    if (permit === undefined) return void (this.totals.skipped += 1);
    using deadline = Deadline.after('probe', this.#init.probe_ms, { signal });
    const result = await prove({ address, url: provider.url, size: this.size(address) }, deadline);
    if (signal.aborted) return permit.settle('none');
    permit.settle(result.kind === 'unreachable' ? 'failure' : 'success');
    const isChanged = this.#record(request, result);
    this.#init.onProbed?.(request, result);
    if (isChanged) this.#init.onChange(address);
  }

  #record({ address, provider }: ProbeRequest, result: ProbeResult): boolean {
    if (result.kind === 'unreachable') {
      this.totals.unreachable += 1;
      return false;
    }
    if (result.kind === 'failed') {
      this.totals.failed[result.why] += 1;
      return this.#verdicts.setFailed(address, provider, result.why);
    }
    this.totals.proven += 1;
    return this.#verdicts.setProven(address, provider, result.size, result.latency_ms);
  }
}

const keyOf = ({ address, provider }: ProbeRequest): string => `${address} ${provider.id} ${provider.url}`;
