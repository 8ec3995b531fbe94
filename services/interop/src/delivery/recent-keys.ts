/**
 * The idempotency keys of deliveries that were accepted lately.
 *
 * Mailbox decides which delivery is a duplicate. While it is not called, only the spool knows keys, and it forgets each when its
 * delivery is drained: a replay in a brownout would be accepted as new, with a receipt of its own.
 *
 * Contract: `receiptOf` gives the receipt of a key that was accepted; an unknown key proves nothing.
 * Bound: `KEYS_MAX` keys for `KEPT_MS`, about 10 MiB. Overflow: keys are evicted, those that are used again last. A restart forgets
 * all of them.
 */
import { Cache } from '@ron/cache';

const KEYS_MAX = 32_768;
/**
 * The default dedup window of mailbox for webhooks. A topic with a longer one may take a replay in a brownout for a new delivery;
 * with a shorter one, a repeated delivery stays a duplicate in the spool for this time.
 */
const KEPT_MS = 24 * 3_600_000;

export class RecentKeys {
  readonly #receipts = new Cache<string>({ entries_max: KEYS_MAX });

  accepted(idempotency_key: string, receipt: string): void {
    this.#receipts.set(idempotency_key, receipt, 0, { ttl_ms: KEPT_MS });
  }

  /** The id of the first receipt. */
  receiptOf(idempotency_key: string): string | undefined {
    return this.#receipts.get(idempotency_key);
  }
}
