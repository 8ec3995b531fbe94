/**
 * Limits how often each subject changes the name log, which never shrinks.
 *
 * Contract: `per_min` changes per minute and subject, with bursts up to that number. A changed limit applies to the next call.
 * Bound: `SUBJECTS_MAX` subjects. Overflow: the subject that was idle longest is forgotten and starts anew.
 */
import { RonError, TokenBucket } from '@ron/kernel';

const SUBJECTS_MAX = 4096;
const MINUTE_S = 60;

export class SubjectRates {
  readonly #per_min: () => number;
  /** In the order of use. */
  readonly #buckets = new Map<string, TokenBucket>();

  constructor(per_min: () => number) {
    this.#per_min = per_min;
  }

  /** Throws `rate_limited` if the subject has used its share. */
  take(subject: string): void {
    const bucket = this.#bucketOf(subject);
    if (bucket.tryTake()) return;
    throw new RonError('rate_limited', `more than quotas.publish_per_min (${bucket.burst}) changes per minute`, {
      retry_after_ms: Math.ceil(bucket.retryAfter_ms()),
    });
  }

  #bucketOf(subject: string): TokenBucket {
    const burst = this.#per_min();
    const known = this.#buckets.get(subject);
    this.#buckets.delete(subject);
    const bucket = known?.burst === burst ? known : new TokenBucket('publish', { rate_per_s: burst / MINUTE_S, burst });
    this.#buckets.set(subject, bucket);
    if (this.#buckets.size > SUBJECTS_MAX) this.#buckets.delete(this.#buckets.keys().next().value!);
    return bucket;
  }
}
