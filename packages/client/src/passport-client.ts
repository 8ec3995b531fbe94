/**
 * The issuer of capabilities as a caller sees it.
 *
 * Promise: tokens are in what `issue` returns and nowhere else. A call that is repeated may issue twice, which costs
 * nothing, or revoke twice, which is the same as once.
 * Bound, cancellation: as the transport's.
 */
import type { Issued, IssueInit, Revoked, TokenVerdict } from '@ron/proto';
import { JsonCalls } from './json-calls.ts';
import type { TransportInit } from './transport.ts';

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
