/** The answers of edge about cached assets: purges, and the explanation of one asset. */
import type { Address } from './address.ts';
import type { AuditProof } from './kms.ts';

/** The assets to remove: one key, all keys with a prefix, or all assets of an origin (`host` or `host:port`). */
export type EdgePurgeDto =
  | { readonly key: string }
  | { readonly prefix: string }
  | {
      readonly host: string;
    };

export interface EdgePurgedDto {
  /** The number of removed assets. */
  readonly removed: number;
}

/** Where an asset would be served from now. `none`: it is not here. */
export type EdgeTier = 'pack' | 'ram' | 'cas' | 'none';

/** The rule that decided the freshness lifetime (RFC 9111, 4.2.1). `none`: the origin stated nothing. */
export type EdgeLifetimeSource = 's-maxage' | 'max-age' | 'expires' | 'heuristic' | 'no-cache' | 'none';

/** The freshness calculation of RFC 9111, 4.2, with its terms. */
export interface EdgeFreshnessDto {
  readonly is_fresh: boolean;
  /** The current age. */
  readonly age_s: number;
  readonly lifetime_s: number;
  readonly lifetime_from: EdgeLifetimeSource;
  /** The asset must not be served stale: `must-revalidate`, `proxy-revalidate`, `s-maxage` or `no-cache`. */
  readonly must_revalidate: boolean;
  /** The terms of the age: `max(apparent_age, age_header + response_delay) + resident_time`. */
  readonly apparent_age_s: number;
  readonly age_header_s: number;
  readonly response_delay_s: number;
  readonly resident_time_s: number;
  /** The headers of the origin that took part; null if it did not send them. */
  readonly cache_control: string | null;
  readonly expires: string | null;
  readonly date: string | null;
  readonly last_modified: string | null;
}

/** The provenance of an asset: the entry of the fill log. */
export interface EdgeProvenanceDto {
  readonly host: string;
  /** The IP address and port that were dialled. */
  readonly dialled: string;
  /** SHA-256 of the public key of the certificate (SPKI), hex. */
  readonly certificate_key: string;
  /** The ETag as the origin sent it; null if it sent none. */
  readonly etag: string | null;
  /** When the answer arrived (Unix ms). */
  readonly time_ms: number;
  /** The entry of the fill log; null if the log is not the one that recorded it. */
  readonly log_index: number | null;
}

/** Whether a miss would be fetched: `yes`, or the reason of the refusal. */
export type EdgeFillable = 'yes' | 'not_allowed' | 'amnesia' | 'no_storage' | 'not_fillable';

/** `GET /edge/why?path=`: why an asset is served as it is. */
export interface EdgeWhyDto {
  /** The path below `/edge/assets/`, in its one spelling. */
  readonly key: string;
  readonly tier: EdgeTier;
  /** The state of an entry that is here. `negative`: the origin answered 404 or 410 a short time ago. */
  readonly state: 'fresh' | 'stale' | 'negative' | 'missing';
  readonly address: Address | null;
  readonly size: number | null;
  readonly media_type: string | null;
  /** The pack of a tile. */
  readonly pack: { readonly name: string; readonly address: Address; readonly format: string } | null;
  /** Null for packs and for objects of storage: their address never changes. */
  readonly freshness: EdgeFreshnessDto | null;
  readonly provenance: EdgeProvenanceDto | null;
  /** The inclusion proof of the entry, as `ron audit verify --proof` reads it; absent until a checkpoint covers it. */
  readonly proof?: AuditProof;
  /** The reason why there is no proof of an asset with provenance. */
  readonly proof_problem: string | null;
  readonly fillable: EdgeFillable;
}

/** `GET /edge/fills/keys`: the name of the fill log and the keys that sign it. Keep a copy elsewhere. */
export interface EdgeFillKeysDto {
  readonly origin: string;
  readonly vkeys: readonly string[];
}
