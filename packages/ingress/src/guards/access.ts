/**
 * Where a capability checker plugs in; the checker of `@ron/auth` fits as it is.
 *
 * Contract: phase 1 (`checkHeaders`) runs before any queue and before a byte of the body is read. Phase 2 sees every decoded byte
 * of the body before the handler does; a refusal there ends the request before any side effect.
 */
import { RonError } from '@ron/kernel';
import type { ErrorCode } from '@ron/kernel';

/** The objects that a request acts on, by the caveat that may restrict them. */
export interface AccessFacts {
  readonly address?: string | undefined;
  readonly name?: string | undefined;
  readonly label?: string | undefined;
  readonly tenant?: string | undefined;
}

export type FactName = keyof AccessFacts;

/** The input of phase 1. */
export interface AccessRequest {
  /** The `Authorization` header as it came. */
  readonly authorization: string | undefined;
  readonly scope: string;
  /** The client's address, after trusted proxies. */
  readonly source_ip: string;
  readonly facts?: AccessFacts | undefined;
  readonly facts_later?: readonly FactName[] | undefined;
  /** 0 when there is no body, undefined when its decoded length is not declared. */
  readonly body_bytes?: number | undefined;
}

export interface Refusal {
  readonly ok: false;
  readonly code: ErrorCode;
  readonly reason: string;
  readonly retry_after_ms?: number;
}

/** The checks that need the body. */
export interface Phase2 {
  readonly needsBody: boolean;
  update(bytes: Uint8Array): Refusal | undefined;
  end(): Refusal | undefined;
  facts(facts: AccessFacts): Refusal | undefined;
  /** The last word before side effects. */
  settle(): Refusal | undefined;
}

export interface Grant {
  readonly ok: true;
  /** Names the capability in logs and audits; never the capability itself. */
  readonly capability_id: string;
  readonly subject: string;
  /** Issued by the node to one of its own services: opens the in-flight reserve. Default false. */
  readonly is_service?: boolean;
  readonly scopes: readonly string[];
  /** Its restrictions, one caveat each, for routes that issue narrower capabilities. */
  readonly caveats: readonly string[];
  readonly phase2: Phase2;
}

export interface AccessCheck {
  /** Should answer without a promise when it has seen the capability before: only then can the fast path answer. */
  checkHeaders(request: AccessRequest, signal: AbortSignal): Grant | Refusal | Promise<Grant | Refusal>;
}

export function refusalError(refusal: Refusal): RonError {
  const wait_ms = refusal.retry_after_ms;
  return new RonError(refusal.code, refusal.reason, wait_ms === undefined ? {} : { retry_after_ms: wait_ms });
}

/** Throws when phase 2 refused. */
export function insist(refusal: Refusal | undefined): void {
  if (refusal !== undefined) throw refusalError(refusal);
}
