/** The requests and answers of interop, and their limits. */

const KIB = 1024;
const MIB = 1024 * KIB;

export const INTEROP_LIMITS = {
  webhook_bytes: MIB,
  /** Chunks of a streamed `/put`. */
  chunk_bytes: 64 * KIB,
  providers: 256,
  /** Live secrets of a provider. */
  secrets: 2,
  /** Signatures in one request. */
  signatures: 4,
  secret_bytes_min: 16,
  secret_bytes_max: 512,
  networks: 64,
  origins: 16,
  origin_chars: 256,
  /** Of one provider. */
  rps_max: 10_000,
  inflight_max: 1024,
  /** How long a rotated secret stays valid by default, and at most. */
  overlap_ms: 24 * 3_600_000,
  overlap_ms_max: 30 * 24 * 3_600_000,
  /** Recent deliveries of each kind, accepted and refused. */
  deliveries: 5000,
  deliveries_page: 500,
  /** The longest time that a manual brownout mode can be set for. */
  brownout_ms: 24 * 3_600_000,
  brownout_why_chars: 256,
} as const;

export const SCHEMES = ['github', 'slack', 'stripe', 'standard', 'generic'] as const;
export type SchemeName = (typeof SCHEMES)[number];

/** Lower case letters, digits and `_`: it is part of a path, of metrics and of the default topic. */
export const PROVIDER_PATTERN = '^[a-z0-9_]{1,32}$';
/** Topics of webhooks lie below this prefix. */
export const HOOKS_PREFIX = 'hooks.';

/** How a provider of the scheme `generic` signs. */
export interface GenericScheme {
  /** The signed bytes: literals and `{timestamp}`, `{id}`, `{body}`. Ends in its only `{body}`; literals separate fields. */
  readonly template: string;
  readonly signature_header: string;
  /** The text before the signature, such as `sha256=`. Default none. */
  readonly prefix?: string;
  readonly encoding: 'hex' | 'base64';
  readonly algorithm: 'sha256' | 'sha512';
  /** Required if the template has `{timestamp}`. */
  readonly timestamp_header?: string;
  /** Required if the template has `{id}`. */
  readonly id_header?: string;
}

export interface ProviderLimits {
  /** Verified deliveries per second; further ones get 429. */
  readonly rps: number;
  /** Verified deliveries in process at a time; further ones get 429. */
  readonly inflight: number;
}

/** The body of `PUT /admin/providers/{name}`, without the secret. */
export interface ProviderInit {
  readonly scheme: SchemeName;
  /** Default `hooks.<name>`. */
  readonly topic?: string;
  /** Networks from which deliveries are accepted. Default: all. */
  readonly networks?: readonly string[];
  /** Accepted values of the `Origin` header. Default: a request with one is refused. */
  readonly origins?: readonly string[];
  readonly limits?: Partial<ProviderLimits>;
  /** Required for the scheme `generic`. */
  readonly generic?: GenericScheme;
}

/** The body of `PUT /admin/providers/{name}`. A new provider needs a secret; a known one keeps its secrets without. */
export interface ProviderRequest extends ProviderInit {
  readonly secret?: string;
}

/** The body of `POST /admin/providers/{name}/rotate`. */
export interface RotateRequest {
  readonly secret: string;
  /** How long the previous secret stays valid. Default 24 h. */
  readonly overlap_ms?: number;
}

/** A provider as it is stored. */
export interface Descriptor {
  readonly name: string;
  readonly scheme: SchemeName;
  readonly topic: string;
  readonly networks: readonly string[];
  readonly origins: readonly string[];
  readonly limits: ProviderLimits;
  readonly generic?: GenericScheme;
}

/** A secret of a provider, without its value. */
export interface SecretDto {
  readonly version: number;
  /** HMAC, or the public key of a `v1a` signature. */
  readonly kind: 'hmac' | 'ed25519';
  readonly created_ms: number;
  /** The time after which it is not accepted; absent for the newest. */
  readonly ends_ms?: number;
  /** Deliveries that it verified since the start. */
  readonly uses: number;
  /** When it last verified one, since the start. */
  readonly last_used_ms?: number;
}

export interface WebhookProviderDto extends Descriptor {
  readonly secrets: readonly SecretDto[];
  /** Why its webhooks are refused; absent if they are accepted. */
  readonly problem?: string;
}

/** Why a request is refused: `X-Reason`, the member `reason` of a problem, and `rejected_total{reason}`. */
export const REJECT_REASONS = [
  'BAD_ORIGIN',
  'EXPIRED_TOKEN',
  'SCOPE_MISMATCH',
  'POLICY_BLOCKED',
  'BODY_LIMIT',
  'DECOMP_LIMIT',
  'RATE_LIMIT',
  'BUSY',
  'BACKPRESSURE',
  'DOWNSTREAM_UNAVAILABLE',
] as const;
/** The answer of `GET /admin/providers`, by name. */
export interface ProviderListDto {
  readonly providers: readonly WebhookProviderDto[];
}

export type RejectReason = (typeof REJECT_REASONS)[number];

/** The answer to an accepted webhook. */
export interface AcceptedWebhook {
  /** The id of its receipt, and of its message. */
  readonly receipt: string;
  readonly duplicate: boolean;
  /** `b3:<hex>` of the body. */
  readonly b3: string;
  readonly place: 'mailbox' | 'spool';
}

/** The acceptance of a webhook. Its canonical JSON is a leaf of a signed tree. */
export interface WebhookReceipt {
  /** A ULID. */
  readonly id: string;
  readonly provider: string;
  readonly scheme: SchemeName;
  readonly secret_version: number;
  /** With the prefix `unsigned-` if no signature covers it; absent if the provider sent none. */
  readonly delivery_id?: string;
  readonly received_ms: number;
  readonly b3: string;
  readonly bytes: number;
  readonly topic: string;
}

/** One signature of a root, as kms gives it. */
export interface ReceiptSignature {
  readonly kid: string;
  readonly alg: string;
  readonly signature_b64: string;
}

/** The answer of `GET /receipts/{id}` with 202: kms has not signed it yet. */
export interface UnsignedReceipt {
  readonly receipt: WebhookReceipt;
}

/** The place of a receipt in a signed tree. All hashes are in hex. */
export interface ReceiptTree {
  readonly size: number;
  readonly index: number;
  /** The hash of the receipt. Any other receipt has another one. */
  readonly leaf: string;
  /** From the leaf to the root. */
  readonly path: readonly string[];
  readonly root: string;
}

/** The answer of `GET /receipts/{id}`: a receipt and its proof. */
export interface SignedReceipt {
  readonly receipt: WebhookReceipt;
  readonly tree: ReceiptTree;
  /** The kid with its version, as it is signed. */
  readonly kid: string;
  readonly sigs: readonly ReceiptSignature[];
  /** The entry of the signature in the audit log of kms; absent if the log lagged behind. No signature covers it. */
  readonly log_index?: number;
  /** Once a checkpoint covers the entry. */
  readonly log_proof?: object;
}

export type BrownoutMode = 'auto' | 'on' | 'off';

export interface BrownoutRequest {
  readonly mode: BrownoutMode;
  /** When the mode ends and `auto` returns. Required unless the mode is `auto`. */
  readonly until_ms?: number;
  readonly why?: string;
}

/** The upstreams that the brownout sentinel watches. */
export const BROWNOUT_UPSTREAMS = ['storage', 'mailbox', 'passport'] as const;
export type BrownoutUpstream = (typeof BROWNOUT_UPSTREAMS)[number];
export type UpstreamName = BrownoutUpstream | 'kms';

export interface UpstreamDto {
  readonly upstream: BrownoutUpstream;
  /** Whether the sentinel found it unhealthy. */
  readonly active: boolean;
  /** Whether work for it is shed: by the sentinel, or by the mode. */
  readonly sheds: boolean;
  /** The share of failed calls; absent without calls. */
  readonly error_rate?: number;
  /** A brownout begins above it; while one is active, it ends at or below it. */
  readonly error_rate_limit: number;
  readonly p95_ms?: number;
  /** A brownout begins at it; while one is active, it ends below it. */
  readonly p95_limit_ms: number;
  readonly breaker: string;
}

export interface BrownoutDto extends BrownoutRequest {
  /** Whether work for any upstream is shed. */
  readonly active: boolean;
  readonly upstreams: readonly UpstreamDto[];
}

/** One delivery in `GET /admin/deliveries`; never its body. */
export interface DeliveryDto {
  readonly seq: number;
  readonly at_ms: number;
  readonly provider: string;
  readonly outcome: 'accepted' | 'duplicate' | 'spooled' | 'refused' | 'challenge';
  readonly corr_id: string;
  readonly bytes?: number;
  readonly b3?: string;
  readonly receipt?: string;
  readonly event?: string;
  readonly delivery_id?: string;
  readonly reason?: RejectReason;
  readonly detail?: string;
  /** Equal refusals that were summed into this entry. */
  readonly count?: number;
  readonly test?: boolean;
}

export interface DeliveriesPage {
  readonly deliveries: readonly DeliveryDto[];
  /** Pass it as `after` for later ones. */
  readonly next: number;
  /** Entries between `after` and the oldest one kept, which are gone. */
  readonly lost: number;
}
