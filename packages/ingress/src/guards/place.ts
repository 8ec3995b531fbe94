/**
 * The in-flight place of one request, from its admission to its end.
 *
 *   pending --enterReserve()--> held                  found no open place; its capability is being checked
 *   held --queue()--> queued --begin()--> held        waits in a work queue: counts for its address only
 *   held --stall()--> stalled -unstall()> held        the client does not read: counts for its address only, until it
 *                                                     reads again and a place is free
 *   held --vacate()-> away ----retake()-> held        parked, or an event stream: counted by another limit
 *
 * Contract: in any order of calls, everything taken from `Admission` is returned exactly once. `end` is final and idempotent.
 * Bound: one object per routed request.
 *
 *   const place = new Place(admission, address, true); // the caller entered
 *   place.vacate();
 *   place.retake();
 *   place.end();
 */
import type { Admission, ClientAddress, RonError } from '@ron/kernel';
import type { PendingEntry } from './reserve-entry.ts';

type State = 'pending' | 'held' | 'queued' | 'stalled' | 'away' | 'ended';

export class Place {
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

  /** For a request that has not entered: it does with `enterReserve`, or it ends. */
  static pending(admission: Admission, pending: PendingEntry): Place {
    const place = new Place(admission, undefined, false);
    place.#state = 'pending';
    place.#pending = pending;
    return place;
  }

  /** Why it has no place, while it is pending. */
  get refusal(): RonError | undefined {
    return this.#pending?.refusal;
  }

  /** Enters as an internal caller. False when the reserve is taken, too. */
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

  /** Without a free place it stays as it is: an answer goes on, and must not deny new requests when many resume. */
  unstall(): void {
    if (this.#state === 'stalled' && this.#admission.tryResume()) this.#state = 'held';
  }

  vacate(): void {
    if (this.#state !== 'held') return;
    this.#state = 'away';
    if (this.address !== undefined) this.#admission.keep(this.address);
    this.#admission.leave(this.address);
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
    else if (state === 'queued' || state === 'stalled') this.#admission.drop(this.address);
    else if (state === 'pending') this.#checked();
    else if (state === 'away' && this.address !== undefined) this.#admission.release(this.address);
  }
}
