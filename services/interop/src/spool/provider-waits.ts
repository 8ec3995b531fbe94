/**
 * Providers whose deliveries cannot be sent now, and until when they wait.
 *
 * Contract: after a full topic, one delivery of the provider is tried at a time until one succeeds. After another failure the
 * waits grow up to `BACKOFF_MS_MAX`. Bound: one entry for each provider in the spool (`retain`).
 */
import { jittered, sched } from '@ron/kernel';

/** Less than `FullTopics` remembers a topic, so that newer deliveries are refused in between. */
const FULL_MS = 750;
const BACKOFF_MS_MAX = 10_000;
const backoff = jittered({ tries_max: Infinity, from_ms: 250, to_ms: 500, factor: 2, cap_ms: BACKOFF_MS_MAX });
/** Further failures do not lengthen the wait. */
const FAILURES_MAX = 8;

interface Wait {
  readonly until_ms: number;
  readonly failures: number;
  readonly isFull: boolean;
}

export class ProviderWaits {
  readonly #waits = new Map<string, Wait>();

  /** How many deliveries of the provider may be sent now. */
  allowance(provider: string): number {
    const wait = this.#waits.get(provider);
    if (wait === undefined) return Infinity;
    return sched.now_ms() < wait.until_ms ? 0 : 1;
  }

  /** How long until the next provider may be tried; Infinity if none waits. */
  get next_ms(): number {
    let until_ms = Infinity;
    for (const wait of this.#waits.values()) until_ms = Math.min(until_ms, wait.until_ms);
    return Math.max(0, until_ms - sched.now_ms());
  }

  /** The topic of the provider is full. True if it was not known before. */
  full(provider: string): boolean {
    const isKnown = this.#waits.get(provider)?.isFull === true;
    this.#waits.set(provider, { until_ms: sched.now_ms() + FULL_MS, failures: 0, isFull: true });
    return !isKnown;
  }

  /** Its next delivery cannot be read, or its topic is refused. True if it was not known before. */
  failed(provider: string): boolean {
    const failures = this.#waits.get(provider)?.failures ?? 0;
    const until_ms = sched.now_ms() + backoff.backoff_ms(failures);
    this.#waits.set(provider, { until_ms, failures: Math.min(FAILURES_MAX, failures + 1), isFull: false });
    return failures === 0;
  }

  /** A delivery was sent. True if its topic was full before. */
  succeeded(provider: string): boolean {
    const isFull = this.#waits.get(provider)?.isFull === true;
    this.#waits.delete(provider);
    return isFull;
  }

  /** Forgets the providers that have no delivery in the spool. */
  retain(holds: (provider: string) => boolean): void {
    for (const provider of this.#waits.keys()) if (!holds(provider)) this.#waits.delete(provider);
  }
}
