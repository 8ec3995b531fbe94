/**
 * The network below the lookups: one request to one peer. The libp2p adapter, the simulation and the tests implement it.
 * Every call ends with its signal. A call with `peer.id === self` reads or writes the records that this node keeps for the
 * network, without a request.
 */

export interface PeerRef {
  readonly id: string;
  /** Multiaddrs. */
  readonly addrs: readonly string[];
}

/** The claim of a peer that a node has an object. */
export interface ProviderClaim {
  readonly id: string;
  /** The base URL of its storage, valid only with the IP of the peer itself; undefined if it announced none. */
  readonly url: string | undefined;
}

/** Closer peers that are sent, and read from an answer: the peers of one bucket. */
export const CLOSER_MAX = 20;

export interface PeerAnswer {
  readonly providers: readonly ProviderClaim[];
  /** The value of `getValue`: 64 bytes of signature, then the record. */
  readonly value: Uint8Array | undefined;
  /** Peers that are closer to the key; at most 20 are read. */
  readonly closer: readonly PeerRef[];
}

export interface Peers extends AsyncDisposable {
  /** The peer id of this node. */
  readonly self: string;
  /** The number of known peers. */
  readonly known: number;
  /** The addresses at which this node listens, with its peer id. */
  readonly listening: readonly string[];
  /** Known peers that are closest to `key`, the closest first, without this node. Does not use the network. */
  closest(key: Uint8Array, count: number): Promise<PeerRef[]>;
  getProviders(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer>;
  getValue(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer>;
  putValue(peer: PeerRef, key: Uint8Array, value: Uint8Array, signal: AbortSignal): Promise<void>;
  /** Sends one ADD_PROVIDER for each key on one stream. */
  addProvider(peer: PeerRef, keys: readonly Uint8Array[], signal: AbortSignal): Promise<void>;
  findNode(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerRef[]>;
}
