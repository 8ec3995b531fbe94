/** Requests and answers of the issuer of capabilities. */

export interface IssueInit {
  readonly audience: string;
  readonly scopes: readonly string[];
  /** The holder, for revocation and audits. Default: a new name, so that the capability can be revoked on its own. */
  readonly subject?: string | undefined;
  /** Limited by the issuer's policy. Default: the policy's. */
  readonly ttl_ms?: number | undefined;
  /** Further restrictions, such as `name ^= photos/`. */
  readonly caveats?: readonly string[];
}

export interface Issued {
  readonly token: string;
  readonly capability_id: string;
  readonly subject: string;
  readonly expires_ms: number;
}

export interface TokenVerdict {
  readonly ok: boolean;
  /** The reason of a refusal. */
  readonly reason?: string;
  readonly audience?: string;
  readonly subject?: string;
  readonly scopes?: readonly string[];
  readonly expires_ms?: number;
  readonly capability_id?: string;
}

export interface Revoked {
  readonly subject?: string;
  /** When one capability was revoked. */
  readonly capability_id?: string;
  /** Unix ms. Capabilities of the subject, or of all, with an earlier epoch are refused. */
  readonly epoch: number;
}
