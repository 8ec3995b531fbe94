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

/** The scopes of interop that can be exchanged. */
export type ExchangedScope = 'interop:put' | 'interop:get';

/** Of a client of interop: exchanged for a capability that storage accepts for this one request. */
export type ExchangeInit = {
  /** The capability of the client, as it was presented to interop. */
  readonly token: string;
} & (
  | {
      /** The scope that the request of the client needs. */
      readonly scope: ExchangedScope;
      /** The whole address of the object. */
      readonly address: string;
    }
  | {
      readonly scope: 'interop:put';
      /** The address is not known before the end of the body: the largest body. */
      readonly bytes_max: number;
    }
);

export type ExchangeVerdict = (Issued & { readonly ok: true }) | ExchangeRefusal;

/** The capability of the client is refused. */
export interface ExchangeRefusal {
  readonly ok: false;
  readonly code: 'unauthorized' | 'forbidden';
  readonly cause?: 'expired' | 'revoked';
  readonly reason: string;
}
