/**
 * Bounds the connections in use, per origin and in total.
 *
 * Contract: `acquire` gives a slot once both counts have room; a waiter whose origin is full does not block waiters for
 * other origins, otherwise the order is first in, first out. Releasing a slot twice does nothing.
 * Bound: `sockets_max` slots, `waiting_max` waiters. Overflow: `busy`. Cancellation: by the signal.
 *
 *   const slots = new Slots({ sockets_per_origin: 8, sockets_max: 64, waiting_max: 256 });
 *   const release = await slots.acquire(target.origin, signal);
 *   release();
 */
import { onAbort, RonError, sched, type Parked } from '@ron/kernel/core';
import type { EgressLimits } from '../limits.ts';

type SlotLimits = Pick<EgressLimits, 'sockets_per_origin' | 'sockets_max' | 'waiting_max'>;

export class Slots {
  readonly #limits: SlotLimits;
  /** Slots in use; an origin without any has no entry. */
  readonly #byOrigin = new Map<string, number>();
  readonly #waiting = new Map<Parked<void>, string>();
  #used = 0;

  constructor(limits: SlotLimits) {
    this.#limits = limits;
  }

  get used(): number {
    return this.#used;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Resolves with the function that gives the slot back. */
  async acquire(origin: string, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#hasRoom(origin)) this.#take(origin);
    else await this.#wait(origin, signal);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#giveBack(origin);
    };
  }

  async #wait(origin: string, signal: AbortSignal): Promise<void> {
    if (this.#waiting.size >= this.#limits.waiting_max)
      throw new RonError('busy', 'too many requests wait for a connection', { op: 'egress_slot' });
    const parked = sched.park<void>('egress_slot');
    this.#waiting.set(parked, origin);
    // A waiter that was given its slot is no longer in the map, so an abort after that changes nothing.
    using _ = onAbort(signal, (reason) => {
      if (this.#waiting.delete(parked)) parked.fail(reason);
    });
    await parked.promise;
  }

  #hasRoom(origin: string): boolean {
    const { sockets_max, sockets_per_origin } = this.#limits;
    return this.#used < sockets_max && (this.#byOrigin.get(origin) ?? 0) < sockets_per_origin;
  }

  #take(origin: string): void {
    this.#used++;
    this.#byOrigin.set(origin, (this.#byOrigin.get(origin) ?? 0) + 1);
  }

  #giveBack(origin: string): void {
    const left = this.#byOrigin.get(origin)! - 1;
    this.#used--;
    if (left === 0) this.#byOrigin.delete(origin);
    else this.#byOrigin.set(origin, left);
    for (const [parked, wanted] of this.#waiting) {
      if (!this.#hasRoom(wanted)) continue;
      this.#waiting.delete(parked);
      this.#take(wanted);
      parked.wake();
      return;
    }
  }
}
