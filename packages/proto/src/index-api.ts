/** The messages of the index service. Byte strings are base64url without padding, keys and hashes lower-case hex. */
import type { Address } from './address.ts';

/** A name record with its signature, as clients send and receive it. */
export interface SignedNameDto {
  /** The CBOR bytes of the record. */
  readonly record: string;
  /** Ed25519 over `"ron/name/v1\n"` and the record. */
  readonly signature: string;
}

/** Whether the prober has verified bytes of the object at this provider. Providers that failed are not listed. */
export type ProviderProof = 'proven' | 'unproven';

export interface ProviderDto {
  /** The peer id of the node. */
  readonly id: string;
  /** The base URL of its storage; `GET <url>/o/<address>` returns the object. */
  readonly url: string;
  readonly proof: ProviderProof;
  /** Seconds since the node announced the object; null if unknown: peers of the DHT do not state it. */
  readonly age_s: number | null;
  /** Moving average of the time that its answers take; null if it was not measured. */
  readonly latency_ms: number | null;
}

export interface ProvidersDto {
  readonly address: Address;
  /** The best first. */
  readonly providers: readonly ProviderDto[];
  /** False if answers of peers are missing. */
  readonly complete: boolean;
}

export type ResolveSource = 'cache' | 'db' | 'dht';

export interface ResolvedNameDto {
  /** The key that signed the record, in hex. */
  readonly key: string;
  readonly label: string;
  readonly seq: number;
  /** Unix seconds. */
  readonly not_after: number;
  /** Two valid records contradict each other; `GET /names/<label>` returns both. */
  readonly conflict: boolean;
}

export interface ResolveDto {
  /** The key of the request: `b3:<hex>` or `name:<label>[@<key>]`. */
  readonly key: string;
  readonly address: Address;
  /** Size and media type are null until the node knows them from its own storage or from a verified proof. */
  readonly manifest: { readonly size: number | null; readonly media_type: string | null; readonly url: string | null };
  readonly providers: readonly ProviderDto[];
  readonly name?: ResolvedNameDto;
  readonly source: ResolveSource;
  readonly complete: boolean;
  readonly receipt?: ReceiptDto;
}

/** One request to one peer during a lookup. */
export interface ReceiptPeerDto {
  readonly peer: string;
  /** `alpha`: of the first requests; `beta`: a hedge. */
  readonly wave: 'alpha' | 'beta';
  readonly started_ms: number;
  readonly took_ms: number;
  readonly outcome: 'answered' | 'failed' | 'timeout' | 'canceled' | 'breaker_open';
  readonly tries: number;
  readonly providers: number;
  readonly closer: number;
}

/** The explanation of a lookup: which peers were queried, which hedges and breakers took part, how providers were ranked. */
export interface ReceiptDto {
  readonly started_at: string;
  readonly took_ms: number;
  readonly budget_ms: number;
  readonly source: ResolveSource;
  readonly peers: readonly ReceiptPeerDto[];
  readonly hedges: { readonly started: number; readonly won: number; readonly refused: number };
  readonly breakers: readonly { readonly target: string; readonly state: 'open' | 'half_open' }[];
  readonly ranking: readonly {
    readonly id: string;
    readonly rank: number;
    readonly proof: ProviderProof | 'failed';
    readonly age_s: number | null;
    readonly latency_ms: number | null;
    readonly breaker: 'closed' | 'open' | 'half_open';
  }[];
}

export interface NameDto extends SignedNameDto {
  readonly key: string;
  readonly label: string;
  /** Null if the record removes the name. */
  readonly address: Address | null;
  readonly seq: number;
  readonly not_after: number;
  readonly ttl_s: number;
  /** The BLAKE3 hash of the previous record, or null. */
  readonly previous: string | null;
  readonly moved_to: string | null;
  /** The BLAKE3 hash of this record. */
  readonly hash: string;
  readonly conflict: boolean;
  /** The record that contradicts this one, while `conflict` is true. */
  readonly rival?: SignedNameDto;
  /** Older records, the newest first, with `?history=1`. */
  readonly history?: readonly SignedNameDto[];
}

/** A page of `GET /names?prefix=&after=&limit=`. */
export interface NamePageDto {
  readonly names: readonly NameDto[];
  /** Pass it as `after` for the next page. */
  readonly next?: string;
}

export interface AnnounceEntry {
  readonly address: Address;
  readonly size: number;
  readonly media_type: string;
}

/** A range of addresses; null: without a limit. */
export interface AnnounceRange {
  /** Exclusive. */
  readonly after: Address | null;
  /** Inclusive. */
  readonly through: Address | null;
}

export interface AnnounceDto {
  readonly entries: readonly AnnounceEntry[];
  readonly withdraw?: readonly Address[];
  /** The entries are all objects of the sender in this range: its other objects there are withdrawn. */
  readonly range?: AnnounceRange;
}

/** A changed epoch requests the announcement of all objects. */
export interface AnnouncedDto {
  readonly epoch: string;
}

/** The state of this node in the DHT. */
export interface DhtStatusDto {
  readonly mode: 'standalone' | 'join';
  readonly peer_id: string;
  /** Multiaddrs with the peer id. */
  readonly listening: readonly string[];
  /** The number of known peers. */
  readonly known: number;
  readonly bootstrap: readonly string[];
  /** The base URL at which other nodes read objects of this one. */
  readonly storage_url: string | null;
  /** Why the DHT does not work, or null. */
  readonly problem: string | null;
  /** Targets that get no requests now, or only probes; at most `BREAKERS_LISTED_MAX`. */
  readonly breakers: readonly { readonly target: string; readonly state: 'open' | 'half_open' }[];
}

export interface TrustDto {
  /** Whole segments of labels; the empty prefix is the node's own key. */
  readonly prefix: string;
  readonly key: string;
}

export interface TrustListDto {
  readonly trust: readonly TrustDto[];
}

export const ANNOUNCE_ENTRIES_MAX = 1000;
export const PROVIDERS_LIMIT_MAX = 32;
export const BREAKERS_LISTED_MAX = 64;
