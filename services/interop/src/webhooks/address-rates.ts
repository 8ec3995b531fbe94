/**
 * The rate of webhook requests from each client address, valid or not.
 *
 * Contract: an address gets at most `rate` requests per second and as many in a burst. A request whose refusal was expensive is
 * charged more, afterwards: tokens that are missing then must flow in before the next request. All addresses in the networks of a
 * provider share one bucket, because a provider sends from many addresses. IPv6 addresses are grouped as in `addressGroup`.
 * Bound: `ADDRESSES_MAX` buckets; the missing tokens are at most the charges of a burst. Overflow: the bucket that was used longest
 * ago is dropped; a returning address starts with a full one.
 */
import { addressGroup, TokenBucket } from '@ron/kernel';

const ADDRESSES_MAX = 8192;

export class AddressRates {
  readonly #rate: () => number;
  /** In the order of their last use. */
  readonly #buckets = new Map<string, TokenBucket>();

  constructor(rate: () => number) {
    this.#rate = rate;
  }

  /** `shared`: the provider in whose networks the address lies. */
  tryTake(ip: string, shared: string | undefined): boolean {
    return this.#bucketOf(ip, shared).tryTake(1);
  }

  /** Charges a request that was admitted. */
  charge(ip: string, shared: string | undefined, tokens: number): void {
    this.#bucketOf(ip, shared).charge(tokens);
  }

  /** Whether charges have taken tokens that are still missing. Requests that are not charged never cause it. */
  isInDebt(ip: string, shared: string | undefined): boolean {
    return this.#bucketOf(ip, shared).retryAfter_ms(0) > 0;
  }

  #bucketOf(ip: string, shared: string | undefined): TokenBucket {
    const key = shared === undefined ? addressGroup(ip) : `provider ${shared}`;
    const rate_per_s = this.#rate();
    let bucket = this.#buckets.get(key);
    if (bucket === undefined || bucket.burst !== rate_per_s) {
      bucket = new TokenBucket('webhook_address', { rate_per_s, burst: rate_per_s });
    }
    this.#buckets.delete(key);
    this.#buckets.set(key, bucket);
    if (this.#buckets.size > ADDRESSES_MAX) this.#dropOldest();
    return bucket;
  }

  #dropOldest(): void {
    const [oldest] = this.#buckets.keys();
    if (oldest !== undefined) this.#buckets.delete(oldest);
  }
}
