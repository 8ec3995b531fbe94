/** Providers of webhooks: how they sign, their limits and their secrets. */

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
  /** Why deliveries that it signed are refused; absent if it is loaded. */
  readonly problem?: string;
}

export interface WebhookProviderDto extends Descriptor {
  readonly secrets: readonly SecretDto[];
  /** Why its webhooks are refused; absent if they are accepted. */
  readonly problem?: string;
}

/** The answer of `GET /admin/providers`, by name. */
export interface ProviderListDto {
  readonly providers: readonly WebhookProviderDto[];
}
