/**
 * The restrictions that an issued capability inherits from the capability that issues it.
 *
 * Contract: the issued capability permits nothing that its issuer would not have permitted: it does not expire later and
 * carries every other caveat of its issuer, about names, tenants, bytes, rates and networks. Exception: `sent` and `body`
 * narrow a capability to this one request. They held for the request, which states the whole issued capability, and are not
 * inherited. An `expires` caveat always is: the holder of a capability can add caveats after it, so its place proves nothing.
 * Scopes of passport itself can be issued only if the issuer has them. `passport:issue` covers the scopes of other services; a
 * scopes caveat that names any of those limits the issued scopes to them. Pure. Bound: `CAPABILITY_LIMITS`.
 */
import { parseCaveat, type Caveat } from '@ron/auth';
import { RonError } from '@ron/kernel';
import { isScope, scopeService, type Service } from '@ron/proto';

/** The part of the issuing capability that matters here. */
export interface Issuing {
  readonly capability_id: string;
  /** The ids of the capabilities that it was issued from, nearest first. */
  readonly chain: readonly string[];
  /** All its caveats, as text. */
  readonly caveats: readonly string[];
}

export interface Inherited {
  /** The latest expiry, Unix time in ms. */
  readonly expires_ms_max: number;
  /** In their original order. */
  readonly caveats: readonly string[];
}

/** The request states the audience and the scopes of the issued capability. */
const NOT_INHERITED: ReadonlySet<Caveat['key']> = new Set(['audience', 'scopes', 'sent', 'body']);

export function inherit({ caveats }: Pick<Issuing, 'caveats'>): Inherited {
  let expires_ms_max = Number.MAX_SAFE_INTEGER;
  const handedOn: string[] = [];
  for (const text of caveats) {
    const caveat = caveatOf(text);
    if (NOT_INHERITED.has(caveat.key)) continue;
    if (caveat.key === 'expires') expires_ms_max = Math.min(expires_ms_max, caveat.at_ms);
    else if (!handedOn.includes(text)) handedOn.push(text);
  }
  return { expires_ms_max, caveats: handedOn };
}

/** Throws `forbidden` for a scope that the issuer may not issue. */
export function requireScopes(issuer: Service, scopes: readonly string[], { caveats }: Pick<Issuing, 'caveats'>): void {
  for (const text of caveats) {
    const caveat = caveatOf(text);
    if (caveat.key !== 'scopes') continue;
    const namesOthers = caveat.scopes.some((scope) => serviceOf(scope) !== issuer);
    const beyond = scopes.find(
      (scope) => (namesOthers || serviceOf(scope) === issuer) && !caveat.scopes.includes(scope),
    );
    if (beyond !== undefined) {
      throw new RonError('forbidden', `${beyond} exceeds the scopes that the issuing capability may issue`);
    }
  }
}

function serviceOf(scope: string): string {
  return isScope(scope) ? scopeService(scope) : '';
}

/** The capability was verified, so all its caveats parse. */
function caveatOf(text: string): Caveat {
  const parsed = parseCaveat(text);
  if (!parsed.ok) throw new RonError('forbidden', parsed.reason);
  return parsed.value;
}
