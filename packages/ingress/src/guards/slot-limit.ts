/**
 * Slots for long-running requests: parked handlers and event streams, which hold no in-flight permit, forwarded requests, and
 * bodies of slow clients.
 *
 * Contract: never more than `max` slots are taken, and never more than a share of them by one holder, such as a client address.
 * Internal callers have no holder and are bounded by `max` alone.
 * Bound: one map entry for each holder. Overflow: refused at once, and `onRefused` is called.
 *
 *   const slots = new SlotLimit(256, () => refusals.inc());
 *   if (!slots.tryTake(address)) throw new RonError('busy', 'too many requests are parked');
 *   slots.give(address);
 */
import { assert } from '@ron/kernel';
import type { ClientAddress } from '@ron/kernel';

const SHARE = 0.5;

export class SlotLimit<H = ClientAddress> {
  readonly #max: number;
  readonly #per_holder_max: number;
  readonly #byHolder = new Map<H, number>();
  readonly #onRefused: () => void;
  #taken = 0;

  /** `share`: the part of `max` that one holder may take. */
  constructor(max: number, onRefused: () => void, share = SHARE) {
    this.#max = max;
    this.#onRefused = onRefused;
    this.#per_holder_max = Math.ceil(max * share);
  }

  get taken(): number {
    return this.#taken;
  }

  tryTake(holder: H | undefined): boolean {
    const held = holder === undefined ? 0 : (this.#byHolder.get(holder) ?? 0);
    if (this.#taken >= this.#max || held >= this.#per_holder_max) {
      this.#onRefused();
      return false;
    }
    if (holder !== undefined) this.#byHolder.set(holder, held + 1);
    this.#taken += 1;
    return true;
  }

  give(holder: H | undefined): void {
    assert(this.#taken > 0, 'a slot is returned once');
    this.#taken -= 1;
    if (holder === undefined) return;
    const left = (this.#byHolder.get(holder) ?? 1) - 1;
    if (left === 0) this.#byHolder.delete(holder);
    else this.#byHolder.set(holder, left);
  }
}
