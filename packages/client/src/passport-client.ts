/**
 * The issuer of capabilities as a caller sees it.
 *
 * Promise: tokens are in what `issue` returns and nowhere else. A call that is repeated may issue twice, which costs
 * nothing, or revoke twice, which is the same as once.
 * Bound, cancellation: as the transport's.
 */
import { JsonCalls } from './json-calls.ts';
import type { TransportInit } from './transport.ts';

export interface IssueInit {
  readonly audience: string;
  readonly scopes: readonly string[];
  /** To whom, for revocation and audits. Default: a new name, so that it can be revoked by itself. */
  readonly subject?: string | undefined;
  /** Clamped by the issuer's policy, which also has a default. */
  readonly ttl_ms?: number | undefined;
  /** Further restrictions: `name ^= photos/`. */
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
  /** Why not. */
  readonly reason?: string;
  readonly audience?: string;
  readonly subject?: string;
  readonly scopes?: readonly string[];
  readonly expires_ms?: number;
  readonly capability_id?: string;
}

export interface Revoked {
  /** Left out when all were revoked. */
  readonly subject?: string;
  /** What was issued before this moment, Unix ms, is refused. */
  readonly epoch: number;
}

export class PassportClient {
  readonly #calls: JsonCalls;

  constructor(init: TransportInit) {
    this.#calls = new JsonCalls('v1/passport/', init);
  }

  get url(): string {
    return this.#calls.url;
  }

  issue(init: IssueInit, signal?: AbortSignal): Promise<Issued> {
    return this.#calls.post('issue', 'issue', init, signal);
  }

  /** Whether a token is good now, and for a scope if one is named. */
  verify(init: { readonly token: string; readonly scope?: string }, signal?: AbortSignal): Promise<TokenVerdict> {
    return this.#calls.post('verify', 'verify', init, signal);
  }

  /** Refuses, from within two seconds on, everything that was issued to a subject, or to anybody, until now. */
  revoke(init: { readonly subject: string } | { readonly all: true }, signal?: AbortSignal): Promise<Revoked> {
    return this.#calls.post('revoke', 'revoke', init, signal);
  }
}
