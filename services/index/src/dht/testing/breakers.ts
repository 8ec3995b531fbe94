/** Breakers of the kernel, one for each peer, with the defaults of the service. */
import { Breaker, type BreakerState } from '@ron/kernel';
import type { PeerBreakers, PeerPermit } from '../breakers.ts';

export class TestBreakers implements PeerBreakers {
  readonly #byPeer = new Map<string, Breaker>();

  of(peer: string): Breaker {
    let breaker = this.#byPeer.get(peer);
    if (breaker === undefined) {
      const init = {
        error_window_ms: 10_000,
        trip_threshold: 0.5,
        calls_min: 2,
        cooldown_ms: 5000,
        half_open_probes: 2,
      };
      breaker = new Breaker(peer, init);
      this.#byPeer.set(peer, breaker);
    }
    return breaker;
  }

  state(peer: string): BreakerState {
    return this.#byPeer.get(peer)?.state ?? 'closed';
  }

  admit(peer: string): PeerPermit | undefined {
    return this.of(peer).tryAcquire();
  }

  /** Makes the breaker of a peer trip. */
  open(peer: string): void {
    for (let at = 0; at < 2; at += 1) this.admit(peer)?.settle('failure');
  }
}
