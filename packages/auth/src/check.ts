/**
 * One caveat against one request, from what its headers say: phase 1.
 *
 * Contract: pure. All caveats must hold, so one more of them can only refuse more. What a caveat restricts and the request
 * does not state is refused, unless the route says that it states it later (`facts_later`); phase 2 insists that it does.
 */
import type { Scope, Service } from '@ron/proto';
import type { BodyCaveat, Caveat, FactCaveat, FactName } from './capability/caveats.ts';
import { inNetworks } from './capability/networks.ts';
import { forbidden, unauthorized } from './verdict.ts';
import type { Refusal } from './verdict.ts';

/** What a request acts on. Pass exactly what will be acted on: caveats compare it as it is. */
export type Facts = { readonly [name in FactName]?: string | undefined };

export interface RequestContext {
  /** The `Authorization` header as it came. */
  readonly authorization: string | undefined;
  /** What the route asks for. */
  readonly scope: Scope;
  /** The client's address, after trusted proxies. */
  readonly source_ip: string;
  /** What is known before the body is read: from the path, the query, the headers. */
  readonly facts?: Facts | undefined;
  /** What only the body says. The handler hands it to `phase2.facts` before any side effect. */
  readonly facts_later?: readonly FactName[] | undefined;
  /** The declared length of the decoded body; 0 when there is none, undefined when it is not declared. */
  readonly body_bytes?: number | undefined;
  /** A hash of the body that the client declared, `sha256:<hex>` or `b3:<hex>`. */
  readonly body_hash?: string | undefined;
}

/** What the checker knows beside the request. */
export interface CheckPoint {
  readonly audience: Service;
  /** What all scope caveats have in common, to tell the client. */
  readonly scopes: readonly string[];
  readonly wall_ms: number;
}

/** The refusal that a caveat makes, or undefined when it holds. `rate` holds here: it is counted once all others hold. */
export function refusalOf(caveat: Caveat, request: RequestContext, at: CheckPoint): Refusal | undefined {
  switch (caveat.key) {
    case 'audience':
      return caveat.service === at.audience ? undefined : wrongAudience(caveat.service, at.audience);
    case 'expires':
      return at.wall_ms < caveat.at_ms ? undefined : expired(at.wall_ms - caveat.at_ms);
    case 'scopes':
      return caveat.scopes.includes(request.scope) ? undefined : lacksScope(request.scope, at.scopes);
    case 'address':
    case 'name':
    case 'label':
    case 'tenant':
      if (request.facts_later?.includes(caveat.key) === true) return undefined;
      return factRefusal(caveat, request.facts?.[caveat.key]);
    case 'bytes':
      if (request.body_bytes === undefined || request.body_bytes <= caveat.body_bytes_max) return undefined;
      return tooManyBytes(caveat.body_bytes_max);
    case 'ip':
      if (inNetworks(request.source_ip, caveat.networks)) return undefined;
      return forbidden(
        `capability is limited to ${caveat.networks.map((network) => network.text).join(', ')}; ` +
          `this request came from ${request.source_ip}`,
      );
    case 'body':
      return request.body_hash !== undefined && contradicts(request.body_hash, caveat) ? wrongBody() : undefined;
    case 'rate':
      break;
  }
  return undefined;
}

export function factRefusal(caveat: FactCaveat, fact: string | undefined): Refusal | undefined {
  const article = caveat.key === 'address' ? 'an' : 'a';
  const rule =
    caveat.key === 'tenant' ? `tenant ${caveat.tenant}` : `${article} ${caveat.key} that begins with ${caveat.prefix}`;
  if (fact === undefined) return forbidden(`capability is limited to ${rule}; this request states no ${caveat.key}`);
  const holds = caveat.key === 'tenant' ? fact === caveat.tenant : fact.startsWith(caveat.prefix);
  return holds ? undefined : forbidden(`capability is limited to ${rule}`);
}

export function wrongAudience(its: Service, ours: Service): Refusal {
  return unauthorized(`capability is for ${its}; this is ${ours}`);
}

function lacksScope(wanted: string, has: readonly string[]): Refusal {
  return forbidden(`capability lacks scope ${wanted}; it has ${has.length === 0 ? 'none' : has.join(', ')}`);
}

export function tooManyBytes(body_bytes_max: number): Refusal {
  return forbidden(`capability allows bodies of at most ${body_bytes_max} bytes`);
}

export function wrongBody(): Refusal {
  return forbidden('capability is bound to another body: the hash differs');
}

/** Whether a declared hash is of the caveat's algorithm and another value. Another algorithm says nothing. */
function contradicts(declared: string, caveat: BodyCaveat): boolean {
  return declared.startsWith(`${caveat.algorithm}:`) && declared !== `${caveat.algorithm}:${caveat.hex}`;
}

function expired(since_ms: number): Refusal {
  const since = since_ms < 1000 ? `${Math.round(since_ms)} ms` : `${Math.round(since_ms / 1000)} s`;
  return unauthorized(`capability expired ${since} ago`);
}
