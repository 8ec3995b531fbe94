/**
 * Shares each pass of the event loop among client addresses, so that a flood from one delays the others by a few requests.
 *
 * Contract: one address begins at most `BEGUN_MAX` requests in a pass, or twice that in the first pass of a flood. Later
 * ones begin in later passes in the order in which they came, and each pass serves every address. A request that waits
 * here is not refused and holds no in-flight place.
 * Bound: one waiting call for each connection, and one record for each address with open connections. There is no
 * overflow: a connection that waits is not read.
 * Cancellation: none; a call whose connection closed meanwhile must do nothing.
 *
 *   const share = passes.shareOf(ticket.address);
 *   if (passes.tryBegin(share)) begin();
 *   else passes.later(share, begin);
 */
import { sched } from '@ron/kernel';
import type { ClientAddress } from '@ron/kernel';

/** Few enough that another address waits for about a millisecond, many enough that a pass is worth its cost. */
export const BEGUN_MAX = 16;

/** What one address has begun, and what it has waiting. */
export class Share {
  /** Requests begun in this pass; while the address is not `isBusy`, since it last was. */
  begun = 0;
  /** It began `BEGUN_MAX` requests or has some waiting, so that its passes are counted one by one. */
  isBusy = false;
  readonly waiting: (() => void)[] = [];
}

export class Passes {
  readonly #shares = new WeakMap<ClientAddress, Share>();
  #busy: Share[] = [];

  /** The share of an address. A peer without one (a Unix socket, a proxy) has a share for each connection. */
  shareOf(address: ClientAddress | undefined): Share {
    if (address === undefined) return new Share();
    let share = this.#shares.get(address);
    if (share === undefined) this.#shares.set(address, (share = new Share()));
    return share;
  }

  /** Whether a request may begin now, which counts it. */
  tryBegin(share: Share): boolean {
    if (share.begun < BEGUN_MAX && share.waiting.length === 0) {
      share.begun += 1;
      return true;
    }
    if (share.isBusy) return false;
    // Those before may have begun in earlier passes: only from here on passes are counted, which is not free.
    share.begun = 1;
    this.#watch(share);
    return true;
  }

  /** Calls `begin` in a later pass. It must not throw. */
  later(share: Share, begin: () => void): void {
    share.waiting.push(begin);
    if (!share.isBusy) this.#watch(share);
  }

  #watch(share: Share): void {
    share.isBusy = true;
    this.#busy.push(share);
    if (this.#busy.length === 1) void sched.pause('ingress-pass').then(() => this.#pass());
  }

  #pass(): void {
    const busy = this.#busy;
    this.#busy = [];
    for (const share of busy) {
      share.isBusy = false;
      share.begun = Math.min(share.waiting.length, BEGUN_MAX);
      const due = share.waiting.splice(0, BEGUN_MAX);
      // Before they run: those that they add wait for the next pass.
      if (due.length > 0) this.#watch(share);
      for (const begin of due) begin();
    }
  }
}
