/**
 * Addresses whose objects were stored, retyped or removed since they were last announced.
 *
 * Contract: an address is queued once, however often its object changes; the announcer reads the state of the object when it
 * takes the address. Bound: `capacity` addresses. Overflow: the new address is dropped and counted, and `onOverflow` requests
 * a walk over all objects, which finds it.
 */
import { Notify } from '@ron/kernel';
import type { Address } from '@ron/proto';

export class ChangedObjects {
  readonly #capacity: number;
  readonly #changed = new Notify('announce');
  readonly #addresses = new Set<Address>();
  #isClosed = false;
  /** Called when an address was dropped. Must not throw. */
  onOverflow: (() => void) | undefined;
  rejected_total = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get depth(): number {
    return this.#addresses.size;
  }

  /** Called after each change of an object. Never waits and never throws. */
  note(address: Address): void {
    if (this.#isClosed || this.#addresses.has(address)) return;
    if (this.#addresses.size >= this.#capacity) {
      this.rejected_total += 1;
      this.onOverflow?.();
      return;
    }
    this.#addresses.add(address);
    this.#changed.notifyOne();
  }

  /** Takes the oldest addresses. A change that is noted from now on is queued again. */
  take(count: number): Address[] {
    const taken = [...this.#addresses.keys().take(count)];
    for (const address of taken) this.#addresses.delete(address);
    return taken;
  }

  /** Ends a wait of the announcer. */
  wake(): void {
    this.#changed.notifyOne();
  }

  /** Waits for a change, at most `within_ms`. */
  async wait(signal: AbortSignal, within_ms: number): Promise<void> {
    await this.#changed.notified(signal, { within_ms });
  }

  close(): void {
    this.#isClosed = true;
    this.#addresses.clear();
  }
}
