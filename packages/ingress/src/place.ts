/**
 * The in-flight place of one request, from its admission to its end.
 *
 *   held --queue()--> queued --begin()--> held        waits in a work queue: counts for its address only
 *   held --vacate()-> away ----retake()-> held        parked, an event stream, or a client that does not read: counted
 *                                                     by another limit (slots, or connections)
 *
 * Contract: in any order of calls, everything taken from `Admission` is returned exactly once. `end` is final and idempotent.
 * Bound: one object per routed request.
 *
 *   const place = new Place(admission, address, true); // the caller entered
 *   place.vacate();
 *   place.retake();
 *   place.end();
 */
import type { Admission, ClientAddress } from '@ron/kernel';

type State = 'held' | 'queued' | 'away' | 'ended';

export class Place {
  readonly #admission: Admission;
  readonly address: ClientAddress | undefined;
  #state: State;

  /** `holds`: the caller has entered with this address. A health request has not. */
  constructor(admission: Admission, address: ClientAddress | undefined, holds: boolean) {
    this.#admission = admission;
    this.address = address;
    this.#state = holds ? 'held' : 'ended';
  }

  queue(): void {
    if (this.#state !== 'held') return;
    this.#state = 'queued';
    this.#admission.suspend();
  }

  begin(): void {
    if (this.#state !== 'queued') return;
    this.#state = 'held';
    this.#admission.resume();
  }

  /** False when it was not held. */
  vacate(): boolean {
    if (this.#state !== 'held') return false;
    this.#state = 'away';
    if (this.address !== undefined) this.#admission.keep(this.address);
    this.#admission.leave(this.address);
    return true;
  }

  retake(): void {
    if (this.#state !== 'away') return;
    this.#state = 'held';
    this.#admission.reenter(this.address);
    if (this.address !== undefined) this.#admission.release(this.address);
  }

  end(): void {
    const state = this.#state;
    this.#state = 'ended';
    if (state === 'held') this.#admission.leave(this.address);
    else if (state === 'queued') this.#admission.drop(this.address);
    else if (state === 'away' && this.address !== undefined) this.#admission.release(this.address);
  }
}
