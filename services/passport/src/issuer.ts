/**
 * Issues and verifies capabilities according to the policy.
 *
 * Contract: an issued capability is never wider than the one that issues it (inheritance.ts). Its lifetime is clamped to
 * `ttl_max`. It carries the ids of all its issuers and is revoked with each of them. Scopes that allow issuing are not
 * issued, nor are capabilities for the subjects that the node reserves. Every subject can be revoked by name; without a
 * name it gets a unique one. `verify` returns the verdict of the target service.
 * Bound: `CAPABILITY_LIMITS`. Cancellation: by the signal, while a key is fetched from kms.
 */
import { Checker, inspectToken, isNodeSubject, mint, type KeySource, type Minted } from '@ron/auth';
import { isRonError, RonError, sched } from '@ron/kernel';
import { isScope, NODE_SCOPES, SERVICES, type Scope, type Service, type TokenVerdict } from '@ron/proto';
import type { PassportConfig } from './config.ts';
import { inherit, requireScopes, type Issuing } from './inheritance.ts';
import type { RevocationRegistry } from './revocation-registry.ts';

export interface IssueRequest {
  readonly audience: Service;
  readonly scopes: readonly string[];
  readonly subject?: string | undefined;
  readonly ttl_ms?: number | undefined;
  readonly caveats?: readonly string[] | undefined;
}

export interface IssuerInit {
  readonly keys: KeySource;
  readonly registry: RevocationRegistry;
  readonly policy: () => PassportConfig['passport'];
}

export class Issuer {
  readonly #init: IssuerInit;
  readonly #checkers: ReadonlyMap<string, Checker>;

  constructor(init: IssuerInit) {
    this.#init = init;
    const { keys, registry: epochs } = init;
    this.#checkers = new Map(SERVICES.map((audience) => [audience, new Checker({ audience, keys, epochs })]));
  }

  /** `by` is the issuing capability. */
  async issue(request: IssueRequest, by: Issuing, signal: AbortSignal): Promise<Minted & { readonly subject: string }> {
    const { keys, registry, policy } = this.#init;
    const { ttl_default, ttl_max, never_issue } = policy();
    const { audience, subject = newSubject() } = request;
    const denied = request.scopes.find((scope) => never_issue.includes(scope) || isNodeScope(scope));
    if (denied !== undefined) throw new RonError('forbidden', deniedText(denied));
    if (isNodeSubject(subject)) throw new RonError('forbidden', `${subject} is reserved for the node`);
    const scopes = request.scopes.filter((scope): scope is Scope => isScope(scope));
    if (scopes.length < request.scopes.length)
      throw new RonError('validation', 'the request contains an unknown scope');
    requireScopes('passport', scopes, by);
    const { expires_ms_max, caveats: inherited } = inherit(by);
    const asked = request.caveats ?? [];
    const caveats = [...inherited.filter((text) => !asked.includes(text)), ...asked];
    const ttl_ms = Math.min(request.ttl_ms ?? ttl_default, ttl_max);
    const epoch = await registry.epochNow(subject, signal);
    const chain = [by.capability_id, ...by.chain];
    const init = { audience, scopes, ttl_ms, expires_ms_max, subject, epoch, caveats, chain };
    const minted = await mint(keys, init, signal);
    return { ...minted, subject };
  }

  /** The verdict of its service for a scope; by default the first scope that it has. */
  async verify(
    token: string,
    scope: string | undefined,
    source_ip: string,
    signal: AbortSignal,
  ): Promise<TokenVerdict> {
    const said = readToken(token);
    if (typeof said === 'string') return { ok: false, reason: said };
    const { audience, subject, scopes, expires_ms, capability_id } = said;
    const wanted = scope ?? scopes[0];
    if (wanted === undefined || !isScope(wanted))
      return { ok: false, reason: 'the capability has no scope, or the scope does not exist' };
    const request = {
      authorization: `Bearer ${token}`,
      scope: wanted,
      source_ip,
      // The target of the request is not known here.
      facts_later: ['address', 'name', 'label', 'tenant'],
    } as const;
    const verdict = await this.#checkers.get(audience)!.checkHeaders(request, signal);
    if (!verdict.ok) return { ok: false, reason: verdict.reason };
    return { ok: true, audience, subject, scopes, expires_ms, capability_id };
  }
}

/** Whatever `passport.never_issue` lists. */
function isNodeScope(scope: string): boolean {
  return isScope(scope) && NODE_SCOPES.includes(scope);
}

function deniedText(scope: string): string {
  return isNodeScope(scope)
    ? `${scope} is never issued: it belongs to the node`
    : `${scope} is not issued here: see passport.never_issue`;
}

function readToken(token: string): ReturnType<typeof inspectToken> | string {
  try {
    return inspectToken(token);
  } catch (error) {
    if (isRonError(error)) return error.message;
    throw error;
  }
}

function newSubject(): string {
  return `c-${Buffer.from(sched.randomBytes(9)).toString('base64url')}`;
}
