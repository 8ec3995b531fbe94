/**
 * A client of passport, the issuer of capabilities.
 *
 * Contract: tokens exist only in the results of `issue` and `exchange`. A retry may issue twice, which is harmless, or revoke twice, which is
 * idempotent. Bound, cancellation: as in Transport.
 */
import type { ExchangeInit, ExchangeVerdict, Issued, IssueInit, Revoked, TokenVerdict } from '@ron/proto';
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

  /** Whether a token is valid now, for a scope if one is given. */
  verify(init: { readonly token: string; readonly scope?: string }, signal?: AbortSignal): Promise<TokenVerdict> {
    return this.#calls.post('verify', 'verify', init, signal);
  }

  /** Exchanges the capability of a client of interop for one of storage that is limited to this request. Not for users. */
  exchange(init: ExchangeInit, signal?: AbortSignal): Promise<ExchangeVerdict> {
    return this.#calls.post('exchange', 'exchange', init, signal);
  }

  /**
   * Revokes all capabilities that were issued to a subject, or to all subjects, until now; or one capability with all that
   * was attenuated or issued from it. In effect within two seconds.
   */
  revoke(
    init: { readonly subject: string } | { readonly capability_id: string } | { readonly all: true },
    signal?: AbortSignal,
  ): Promise<Revoked> {
    return this.#calls.post('revoke', 'revoke', init, signal);
  }
}
