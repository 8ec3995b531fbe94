/**
 * The in-flight permit of one request, from its admission to its end.
 *
 *   pending --enterReserve()--> held                   no permit was free; its capability is being checked
 *   held --queue()---> queued ---begin()-----> held    waits in a work queue: counts for its address only
 *   held --stall()---> stalled --unstall()---> held    the client does not read: counts for its address only, until it
 *                                                      reads again and a permit is free
 *   held --release()-> released -reacquire()-> held    parked, or an event stream: counted by another limit
 *
 * Contract: in any order of calls, everything taken from `Admission` is returned exactly once. `end` is final and
 * idempotent.
 * Bound: one object per routed request.
 *
 *   const permit = new InflightPermit(admission, address, true); // the caller entered
 *   permit.release();
 *   permit.reacquire();
 *   permit.end();
 */
import type { Admission, ClientAddress, RonError } from '@ron/kernel';
import type { PendingEntry } from './reserve-entry.ts';

type State = 'pending' | 'held' | 'queued' | 'stalled' | 'released' | 'ended';

export class InflightPermit {
  readonly #admission: Admission;
  readonly address: ClientAddress | undefined;
  #state: State;
  #pending: PendingEntry | undefined = undefined;

  /** `holds`: the caller has entered with this address. A health request has not. */
  constructor(admission: Admission, address: ClientAddress | undefined, holds: boolean) {
    this.#admission = admission;
    this.address = address;
    this.#state = holds ? 'held' : 'ended';
  }

  /** For a request without a permit. It acquires one by `enterReserve`, or ends. */
  static pending(admission: Admission, pending: PendingEntry): InflightPermit {
    const permit = new InflightPermit(admission, undefined, false);
    permit.#state = 'pending';
    permit.#pending = pending;
    return permit;
  }

  /** The reason why it has no permit, while it is pending. */
  get refusal(): RonError | undefined {
    return this.#pending?.refusal;
  }

  /** Enters as an internal caller. False if the reserve is exhausted too. */
  enterReserve(): boolean {
    if (this.#state !== 'pending' || this.#admission.tryEnter(undefined, 'internal') !== 'ok') return false;
    this.#state = 'held';
    this.#checked();
    return true;
  }

  #checked(): void {
    this.#pending?.checked();
    this.#pending = undefined;
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

  stall(): void {
    if (this.#state !== 'held') return;
    this.#state = 'stalled';
    this.#admission.suspend();
  }

  /** Stays stalled if no permit is free: the answer continues anyway, and must not deny new requests when many clients resume. */
  unstall(): void {
    if (this.#state === 'stalled' && this.#admission.tryResume()) this.#state = 'held';
  }

  release(): void {
    if (this.#state !== 'held') return;
    this.#state = 'released';
    if (this.address !== undefined) this.#admission.keep(this.address);
    this.#admission.leave(this.address);
  }

  reacquire(): void {
    if (this.#state !== 'released') return;
    this.#state = 'held';
    this.#admission.reenter(this.address);
    if (this.address !== undefined) this.#admission.release(this.address);
  }

  end(): void {
    const state = this.#state;
    this.#state = 'ended';
    if (state === 'held') this.#admission.leave(this.address);
    else if (state === 'queued' || state === 'stalled') this.#admission.drop(this.address);
    else if (state === 'pending') this.#checked();
    else if (state === 'released' && this.address !== undefined) this.#admission.release(this.address);
  }
}
