/**
 * The contract between a capability checker and the listener that calls it.
 *
 * Contract: phase 1 (`checkHeaders`) runs before any queue and before the listener reads a byte of the body. Phase 2 sees
 * every decoded byte of the body before the handler does; a refusal there ends the request before any side effect.
 */

/** The objects that a request acts on, by the caveat that can restrict them. Caveats compare these values unchanged. */
export interface AccessFacts {
  readonly address?: string | undefined;
  readonly name?: string | undefined;
  readonly label?: string | undefined;
  readonly tenant?: string | undefined;
}

export type FactName = keyof AccessFacts;

/** The input of phase 1. */
export interface AccessRequest {
  /** The `Authorization` header, unparsed. */
  readonly authorization: string | undefined;
  /** The scope that the route requires. */
  readonly scope: string;
  /** The client's address, after trusted proxies. */
  readonly source_ip: string;
  /** Facts from the path, the query and the headers. */
  readonly facts?: AccessFacts | undefined;
  /** Facts that only the body contains. The handler passes them to `phase2.facts` before any side effect. */
  readonly facts_later?: readonly FactName[] | undefined;
  /** Caveats about these facts do not restrict the request. */
  readonly facts_ignored?: readonly FactName[] | undefined;
  /** The declared length of the decoded body: 0 without a body, undefined when it is not declared. */
  readonly body_bytes?: number | undefined;
  /** A hash of the body that the client declared, `sha256:<hex>` or `b3:<hex>`. */
  readonly body_hash?: string | undefined;
}

/** Rows of the error table: 401, 403 and 429. */
export type RefusalCode = 'unauthorized' | 'forbidden' | 'rate_limited';

export interface AccessRefusal {
  readonly ok: false;
  readonly code: RefusalCode;
  /** For the client. Never contains the token, its signature or a key. */
  readonly reason: string;
  /** Why a capability that was valid is not any more. */
  readonly cause?: 'expired' | 'revoked';
  /** Only with `rate_limited`. */
  readonly retry_after_ms?: number;
}

/** The checks that need the body. */
export interface Phase2 {
  /** False when `update` and `end` have nothing to check and may be left out. */
  readonly needsBody: boolean;
  /** The next bytes of the body, decoded, in order. */
  update(bytes: Uint8Array): AccessRefusal | undefined;
  /** The body is complete. */
  end(): AccessRefusal | undefined;
  /** Facts that the body contains. Called once for each item of a batch. */
  facts(facts: AccessFacts): AccessRefusal | undefined;
  /** Called last before side effects: refuses unless every pending check was made and passed. */
  settle(): AccessRefusal | undefined;
}

export interface AccessGrant {
  readonly ok: true;
  /** Names the capability in logs and audits; never the capability itself. Attenuated capabilities share the id. */
  readonly capability_id: string;
  /** The ids of the capabilities that it was issued from, nearest first. Empty if the node itself issued it. */
  readonly chain: readonly string[];
  /** The holder that it was issued to. */
  readonly subject: string;
  /** Issued by the node to one of its own services: opens the in-flight reserve. Default false. */
  readonly is_service?: boolean;
  /** The scopes that all attenuations left. */
  readonly scopes: readonly string[];
  /** All restrictions, one caveat each, for routes that issue narrower capabilities. */
  readonly caveats: readonly string[];
  readonly phase2: Phase2;
}

export type AccessVerdict = AccessGrant | AccessRefusal;

export interface AccessCheck {
  /** Answers without a promise when it has seen the capability before: only then can the fast path answer. */
  checkHeaders(request: AccessRequest, signal: AbortSignal): AccessVerdict | Promise<AccessVerdict>;
}
