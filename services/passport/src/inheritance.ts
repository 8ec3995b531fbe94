/**
 * What a capability that asks for another hands on to it: everything that restricts it.
 *
 * Promise: whatever the issued one permits, the one that asked for it would have permitted: it ends no later, and carries
 * every other caveat of its issuer, be it about names, tenants, bytes, rates, networks or bodies. Scopes of the issuer's own
 * service can be handed on only if it has them. Scopes of other services are what `passport:issue` stands for; a scopes
 * caveat that names any of them limits what may be issued to those that it names. Pure. Bound: `CAPABILITY_LIMITS`.
 */
import { parseCaveat, type Caveat } from '@ron/auth';
import { RonError } from '@ron/kernel';
import { isScope, scopeService, type Service } from '@ron/proto';

/** What of a capability counts here. */
export interface Issuing {
  /** All its caveats, as they are written. */
  readonly caveats: readonly string[];
}

export interface Inherited {
  /** It ends then at the latest, Unix ms. */
  readonly expires_ms_max: number;
  /** In the order in which they stand. */
  readonly caveats: readonly string[];
}

export function inherit({ caveats }: Issuing): Inherited {
  let expires_ms_max = Number.MAX_SAFE_INTEGER;
  const handedOn: string[] = [];
  for (const text of caveats) {
    const caveat = caveatOf(text);
    if (caveat.key === 'audience' || caveat.key === 'scopes') continue;
    if (caveat.key === 'expires') expires_ms_max = Math.min(expires_ms_max, caveat.at_ms);
    else if (!handedOn.includes(text)) handedOn.push(text);
  }
  return { expires_ms_max, caveats: handedOn };
}

/** Refuses a scope that the issuer may not hand on. */
export function requireScopes(issuer: Service, scopes: readonly string[], { caveats }: Issuing): void {
  for (const text of caveats) {
    const caveat = caveatOf(text);
    if (caveat.key !== 'scopes') continue;
    const namesOthers = caveat.scopes.some((scope) => serviceOf(scope) !== issuer);
    const beyond = scopes.find(
      (scope) => (namesOthers || serviceOf(scope) === issuer) && !caveat.scopes.includes(scope),
    );
    if (beyond !== undefined) {
      throw new RonError('forbidden', `${beyond} is more than the capability that asks for it may hand on`);
    }
  }
}

function serviceOf(scope: string): string {
  return isScope(scope) ? scopeService(scope) : '';
}

/** It was checked, so all its caveats can be read; whatever could not would have refused it. */
function caveatOf(text: string): Caveat {
  const parsed = parseCaveat(text);
  if (!parsed.ok) throw new RonError('forbidden', parsed.reason);
  return parsed.value;
}
