/**
 * Every bound on a capability, in one place. An input over a bound is refused before it costs more than reading its length.
 */
export const CAPABILITY_LIMITS = {
  /** A whole macaroon in binary. In base64url it is 5462 characters, which fits the 16 KiB of a request's headers. */
  token_bytes_max: 4096,
  identifier_bytes_max: 256,
  /** Only the codec reads locations. A capability has none, because its signatures would not cover it. */
  location_bytes_max: 256,
  /** Caveats in one macaroon. Each costs one HMAC on the first use of the token. */
  caveats_max: 32,
  /** The text of one caveat, or the verification id of a third-party one. */
  caveat_bytes_max: 1024,
  /** Entries in a list value: scopes, networks. */
  list_entries_max: 32,
  /** Capabilities between one and the node's own from which it was issued. */
  chain_max: 4,
  /** `mint` clamps lifetimes into this range. */
  ttl_ms_min: 1000,
  ttl_ms_max: 366 * 24 * 3600 * 1000,
} as const;

/** The longest text of a token: base64url without padding. */
export const TOKEN_CHARS_MAX = Math.ceil((CAPABILITY_LIMITS.token_bytes_max * 4) / 3);
