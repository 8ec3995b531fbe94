/**
 * Divides each event loop iteration among client addresses, so that a flood from one delays the others by a few
 * requests.
 *
 * Contract: one address starts at most `started_max` requests per iteration, or twice that in the first iteration of a
 * flood. The others start in later iterations in order of arrival, and each iteration serves every address. A waiting
 * request is not refused and holds no in-flight permit. Transfers schedule their batches in the same way.
 * Bound: one waiting call per connection, because a waiting connection is not read and sends one answer at a time, and one
 * record per address with open connections.
 * Cancellation: a deferred call still runs after its connection has closed, and must then do nothing.
 *
 *   const share = scheduler.shareOf(ticket.address);
 *   if (scheduler.tryStart(share)) start();
 *   else scheduler.defer(share, start);
 */
import { sched } from '@ron/kernel';
import type { ClientAddress } from '@ron/kernel';

/** Small enough that another address waits for about a millisecond, large enough to amortize the cost of an iteration. */
export const STARTED_MAX = 16;

/** The started and the waiting requests, or batches, of one address. */
export class AddressShare {
  /** Requests started in this iteration; while the address is not `isBusy`, since it last was. */
  started = 0;
  /** Whether the address has started `started_max` requests or has some waiting, so that each iteration is counted. */
  isBusy = false;
  readonly waiting: (() => void)[] = [];
}

export class FairScheduler {
  readonly #started_max: number;
  readonly #shares = new WeakMap<ClientAddress, AddressShare>();
  #busy: AddressShare[] = [];

  constructor(started_max = STARTED_MAX) {
    this.#started_max = started_max;
  }

  /** The share of an address. A peer without one (a Unix socket, a proxy) has a share for each connection. */
  shareOf(address: ClientAddress | undefined): AddressShare {
    if (address === undefined) return new AddressShare();
    let share = this.#shares.get(address);
    if (share === undefined) this.#shares.set(address, (share = new AddressShare()));
    return share;
  }

  /** Whether a request may start now. If so, it is counted. */
  tryStart(share: AddressShare): boolean {
    if (share.started < this.#started_max && share.waiting.length === 0) {
      share.started += 1;
      return true;
    }
    if (share.isBusy) return false;
    // The earlier requests may have started in earlier iterations: iterations are counted only from here on, because counting costs time.
    share.started = 1;
    this.#watch(share);
    return true;
  }

  /** Calls `start` in a later iteration. It must not throw. */
  defer(share: AddressShare, start: () => void): void {
    share.waiting.push(start);
    if (!share.isBusy) this.#watch(share);
  }

  #watch(share: AddressShare): void {
    share.isBusy = true;
    this.#busy.push(share);
    if (this.#busy.length === 1) void sched.pause('ingress-iteration').then(() => this.#iterate());
  }

  #iterate(): void {
    const busy = this.#busy;
    this.#busy = [];
    for (const share of busy) {
      share.isBusy = false;
      share.started = Math.min(share.waiting.length, this.#started_max);
      const due = share.waiting.splice(0, this.#started_max);
      // Before the calls run: requests that they add wait for the next iteration.
      if (due.length > 0) this.#watch(share);
      for (const start of due) start();
    }
  }
}
