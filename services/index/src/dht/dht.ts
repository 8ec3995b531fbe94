/** Lookups in the DHT, as the resolver uses them. */
import type { Address, ReceiptPeerDto } from '@ron/proto';
import type { ProviderClaim } from './peers.ts';

export interface FoundProvider extends ProviderClaim {
  /** How many distinct peers reported it with this URL, this node included. */
  readonly reporters: number;
}

/** Collects the explanation of a lookup. Bounded by the requests of the lookup. */
export interface LookupTrace {
  readonly peers: ReceiptPeerDto[];
  hedges_started: number;
  hedges_won: number;
  hedges_refused: number;
}

export interface LookupInit {
  /** The time left for the network phase. */
  readonly signal: AbortSignal;
  readonly trace?: LookupTrace | undefined;
  /** The result of the last proof of this provider: one proven provider ends a lookup, those that failed never do. */
  readonly verdict: (address: Address, provider: ProviderClaim) => 'proven' | 'failed' | undefined;
  /** Called for each new provider, and for each further URL of it, in order of arrival. */
  readonly onProvider?: ((provider: FoundProvider) => void) | undefined;
}

export interface ProvidersFound {
  readonly providers: readonly FoundProvider[];
  /** Every peer that had to be queried has answered, or the result was satisfactory. */
  readonly complete: boolean;
  /**
   * Why no provider was found that has a URL and did not fail its proof, if so. `none_has_it`: the closest peers that
   * answered do not have it, with `complete` if none failed or 20 answered. `deadline`: peers were silent, or all failed.
   * `no_route`: no peer is known.
   */
  readonly empty: 'none_has_it' | 'deadline' | 'breakers_open' | 'no_route' | undefined;
}

export type NameLookupInit = Pick<LookupInit, 'signal' | 'trace'>;

export interface NameFound {
  /** 64 bytes of signature and the record, one for each distinct value. Their signatures are verified, other rules are not. */
  readonly values: readonly Uint8Array[];
  /** Peers that returned a valid value. */
  readonly answers: number;
  readonly complete: boolean;
  readonly empty: ProvidersFound['empty'];
}

export interface Dht {
  /** Undefined while the DHT works; the readiness gate `dht`. */
  readonly problem: string | undefined;
  readonly known: number;
  /** Never rejects: an abort of the signal ends the lookup with the result so far. So does `findName`. */
  findProviders(address: Address, init: LookupInit): Promise<ProvidersFound>;
  findName(key: string, label: string, init: NameLookupInit): Promise<NameFound>;
  /** Stores a signed record at the closest peers; resolves when a quorum has it or the signal aborts. */
  publishName(key: string, label: string, value: Uint8Array, signal: AbortSignal): Promise<{ stored: number }>;
}
