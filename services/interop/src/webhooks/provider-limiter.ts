/**
 * The limits of each provider, applied to verified deliveries only: a forger must not use them up.
 *
 * Contract: `enter` admits a delivery if the provider has a token and fewer than `inflight` deliveries in process. Disposing the
 * result ends the delivery.
 * Bound: `PROVIDERS_MAX` entries, twice the number of providers. Overflow: the entry that was used longest ago is dropped, unless
 * it has deliveries in process. A provider that was idle for a second has a full bucket in any case.
 */
import { RonError, TokenBucket } from '@ron/kernel';
import { INTEROP_LIMITS, type Descriptor } from '@ron/proto';

interface Entry {
  rps: number;
  bucket: TokenBucket;
  inflight: number;
}

const PROVIDERS_MAX = 2 * INTEROP_LIMITS.providers;

export class ProviderLimiter {
  /** In the order of their last use. */
  readonly #entries = new Map<string, Entry>();

  enter({ name, limits }: Pick<Descriptor, 'name' | 'limits'>): Disposable {
    const entry = this.#entryOf(name, limits.rps);
    if (entry.inflight >= limits.inflight) {
      throw limited(`${limits.inflight} deliveries of ${name} are in process`);
    }
    if (!entry.bucket.tryTake(1)) throw limited(`${name} sends more than ${limits.rps} deliveries per second`);
    entry.inflight += 1;
    return { [Symbol.dispose]: () => void (entry.inflight -= 1) };
  }

  #entryOf(name: string, rps: number): Entry {
    const known = this.#entries.get(name);
    const entry = known ?? { rps, bucket: bucketOf(rps), inflight: 0 };
    // Deliveries in process keep counting when the rate changes.
    if (entry.rps !== rps) Object.assign(entry, { rps, bucket: bucketOf(rps) });
    this.#entries.delete(name);
    if (this.#entries.size >= PROVIDERS_MAX) this.#dropIdle();
    this.#entries.set(name, entry);
    return entry;
  }

  #dropIdle(): void {
    for (const [name, { inflight }] of this.#entries) {
      if (inflight > 0) continue;
      this.#entries.delete(name);
      return;
    }
  }
}

const bucketOf = (rps: number): TokenBucket => new TokenBucket('provider', { rate_per_s: rps, burst: rps });

const limited = (message: string): RonError =>
  new RonError('rate_limited', message, { reason: 'RATE_LIMIT', retry_after_ms: 1000 });
