/** The caller of a request, and the check of its capability against the key that the request names. */
import type { RouteContext } from '@ron/ingress';
import type { Attempt, Auditor, Caller } from '../audit/auditor.ts';
import { tenantOf } from '../keys/kid.ts';

const ACTOR = /^[\w.:-]{1,128}$/;

export function callerOf({ grant, deadline }: Pick<RouteContext, 'grant' | 'deadline'>): Caller {
  const id = grant?.capability_id ?? '';
  return { actor: ACTOR.test(id) ? id : 'unknown', deadline };
}

type Facts = Parameters<RouteContext['actsOn']>[0];

/** The facts of a kid, or of the prefix of kids to be made: a capability may be limited to a tenant, and to names. */
export function factsOf(kid: string): { readonly tenant: string; readonly name: string } {
  return { tenant: tenantOf(kid), name: kid };
}

/** Throws when the capability does not allow the operation. The refused attempts are recorded in the audit log. */
export function requireAllowed(
  auditor: Pick<Auditor, 'recordRefusal'>,
  context: Pick<RouteContext, 'actsOn' | 'grant' | 'deadline'>,
  facts: Facts,
  attempts: () => readonly Attempt[],
): void {
  try {
    context.actsOn(facts);
  } catch (error) {
    for (const attempt of attempts()) auditor.recordRefusal(callerOf(context), attempt, error);
    throw error;
  }
}
