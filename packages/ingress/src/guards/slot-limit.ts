/**
 * Slots for long-running requests: parked handlers and event streams, which hold no in-flight permit, and forwarded
 * requests.
 *
 * Contract: never more than `max` slots are taken, and never more than half of them by one client address. Internal
 * callers have no address and are bounded by `max` alone.
 * Bound: one map entry for each address that holds a slot. Overflow: refused at once, and `onRefused` is called.
 *
 *   const slots = new SlotLimit(256, () => refusals.inc());
 *   if (!slots.tryTake(address)) throw new RonError('busy', 'too many requests are parked');
 *   slots.give(address);
 */
import { assert } from '@ron/kernel';
import type { ClientAddress } from '@ron/kernel';

export class SlotLimit {
  readonly #max: number;
  readonly #per_address_max: number;
  readonly #byAddress = new Map<ClientAddress, number>();
  readonly #onRefused: () => void;
  #taken = 0;

  constructor(max: number, onRefused: () => void) {
    this.#max = max;
    this.#onRefused = onRefused;
    this.#per_address_max = Math.ceil(max / 2);
  }

  get taken(): number {
    return this.#taken;
  }

  tryTake(address: ClientAddress | undefined): boolean {
    const held = address === undefined ? 0 : (this.#byAddress.get(address) ?? 0);
    if (this.#taken >= this.#max || held >= this.#per_address_max) {
      this.#onRefused();
      return false;
    }
    if (address !== undefined) this.#byAddress.set(address, held + 1);
    this.#taken += 1;
    return true;
  }

  give(address: ClientAddress | undefined): void {
    assert(this.#taken > 0, 'a slot is returned once');
    this.#taken -= 1;
    if (address === undefined) return;
    const left = (this.#byAddress.get(address) ?? 1) - 1;
    if (left === 0) this.#byAddress.delete(address);
    else this.#byAddress.set(address, left);
  }
}
