/** An asset from an origin or from storage, with its metadata. */
import type { ByteSource } from '@ron/ingress';
import type { Address } from '@ron/proto';
import type { AssetKey } from '../assets/asset-key.ts';

/** The provenance of an asset: the entry of the fill log. */
export interface Provenance {
  readonly key: AssetKey;
  /** `host` or `host:port` of the origin. */
  readonly host: string;
  /** The IP address and port that were dialled. */
  readonly dialled: string;
  /** SHA-256 of the public key of the certificate, hex. */
  readonly certificate_key: string;
  /** The ETag as the origin sent it. */
  readonly etag: string | undefined;
  readonly size: number;
  readonly address: Address;
  /** When the answer arrived (Unix ms). */
  readonly time_ms: number;
}

/** The fields that decide freshness (RFC 9111), as the origin sent them and as they were measured. */
export interface FreshnessFields {
  readonly cache_control: string | undefined;
  readonly expires: string | undefined;
  readonly date: string | undefined;
  readonly last_modified: string | undefined;
  /** The `Age` that the origin sent; 0 without one. */
  readonly age_s: number;
  /** Unix ms. */
  readonly request_ms: number;
  readonly response_ms: number;
}

/** Everything that is known of an asset besides its bytes. As JSON it is the payload of the note of its key. */
export interface AssetMeta {
  readonly key: AssetKey;
  readonly address: Address;
  readonly size: number;
  readonly media_type: string;
  /** The ETag of the origin, for revalidation. */
  readonly etag: string | undefined;
  /** Undefined for objects of storage: they never become stale. */
  readonly freshness: FreshnessFields | undefined;
  /** Undefined for objects of storage: their address proves them. */
  readonly provenance: Provenance | undefined;
  /** The entry of the fill log. */
  readonly log_index: number | undefined;
}

/** `ram`, `cas` (disk) or `fill` (just fetched). */
export type Tier = 'ram' | 'cas' | 'fill';

export interface CachedAsset {
  readonly meta: AssetMeta;
  /** The bytes, verified as they are read. */
  readonly source: ByteSource;
  readonly tier: Tier;
}
