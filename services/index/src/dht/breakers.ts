/** The breakers of peers, as lookups use them. The breaker table of the resolver implements it. */
import type { BreakerState, Verdict } from '@ron/kernel';

/** Leave for one request. The holder settles it exactly once; `none` for a canceled request. */
export interface PeerPermit {
  settle(verdict: Verdict): void;
}

export interface PeerBreakers {
  state(peer: string): BreakerState;
  /** Undefined: the breaker of the peer is open, or its half-open probes are taken. The request must not be sent. */
  admit(peer: string): PeerPermit | undefined;
}
