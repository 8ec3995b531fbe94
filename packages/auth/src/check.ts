/**
 * Phase 1: checks the caveats of a capability against the headers of a request.
 *
 * Contract: pure. All caveats must hold, so a further caveat can only refuse more. A restricted fact that the request does not
 * state is refused, unless its route states it later (`facts_later`); phase 2 requires that it does.
 * A route whose answer is public data lists facts that it ignores (`facts_ignored`).
 */
import type { AccessRefusal, AccessRequest, Service } from '@ron/proto';
import type { BodyCaveat, Caveat, FactCaveat } from './capability/caveats.ts';
import { inNetworks } from './capability/networks.ts';
import { forbidden, unauthorized } from './verdict.ts';

/** Facts about the checker itself. */
export interface CheckPoint {
  readonly audience: Service;
  /** The scopes that all scope caveats allow, for the refusal. */
  readonly scopes: readonly string[];
  readonly wall_ms: number;
}

/** The refusal that a caveat makes, or undefined when it holds. `rate` holds here: it is counted once all others hold. */
export function refusalOf(caveat: Caveat, request: AccessRequest, at: CheckPoint): AccessRefusal | undefined {
  switch (caveat.key) {
    case 'audience':
      return caveat.service === at.audience ? undefined : wrongAudience(caveat.service, at.audience);
    case 'expires':
    case 'sent':
      return at.wall_ms < caveat.at_ms ? undefined : expired(at.wall_ms - caveat.at_ms);
    case 'scopes':
      return caveat.scopes.includes(request.scope) ? undefined : lacksScope(request.scope, at.scopes);
    case 'address':
    case 'name':
    case 'label':
    case 'tenant':
      if (request.facts_later?.includes(caveat.key) === true) return undefined;
      if (request.facts_ignored?.includes(caveat.key) === true) return undefined;
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

export function factRefusal(caveat: FactCaveat, fact: string | undefined): AccessRefusal | undefined {
  const article = caveat.key === 'address' ? 'an' : 'a';
  const rule =
    caveat.key === 'tenant' ? `tenant ${caveat.tenant}` : `${article} ${caveat.key} that begins with ${caveat.prefix}`;
  if (fact === undefined) return forbidden(`capability is limited to ${rule}; this request states no ${caveat.key}`);
  const holds = caveat.key === 'tenant' ? fact === caveat.tenant : fact.startsWith(caveat.prefix);
  return holds ? undefined : forbidden(`capability is limited to ${rule}`);
}

export function wrongAudience(its: Service, ours: Service): AccessRefusal {
  return unauthorized(`capability is for ${its}; this is ${ours}`);
}

function lacksScope(wanted: string, has: readonly string[]): AccessRefusal {
  return forbidden(`capability lacks scope ${wanted}; it has ${has.length === 0 ? 'none' : has.join(', ')}`);
}

export function tooManyBytes(body_bytes_max: number): AccessRefusal {
  return forbidden(`capability allows bodies of at most ${body_bytes_max} bytes`);
}

export function wrongBody(): AccessRefusal {
  return forbidden('capability is bound to another body: the hash differs');
}

/** Whether a declared hash is of the caveat's algorithm and another value. Another algorithm says nothing. */
function contradicts(declared: string, caveat: BodyCaveat): boolean {
  return declared.startsWith(`${caveat.algorithm}:`) && declared !== `${caveat.algorithm}:${caveat.hex}`;
}

function expired(since_ms: number): AccessRefusal {
  const since = since_ms < 1000 ? `${Math.round(since_ms)} ms` : `${Math.round(since_ms / 1000)} s`;
  return unauthorized(`capability expired ${since} ago`, 'expired');
}
