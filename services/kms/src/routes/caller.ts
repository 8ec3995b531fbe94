/** The caller of a request, and the check of its capability against the key that the request names. */
import type { RouteContext } from '@ron/ingress';
import type { Attempt, Auditor, Caller } from '../audit/auditor.ts';

const NAME = /^[\w.:-]{1,128}$/;
/** Issuing capabilities that an entry names; a longer chain is cut at its beginning. */
const CHAIN_MAX = 16;
const NO_CHAIN: readonly string[] = [];

export function callerOf({ grant, deadline }: Pick<RouteContext, 'grant' | 'deadline'>): Caller {
  const chain = chainOf(grant);
  return { actor: nameOr(grant?.capability_id), subject: nameOr(grant?.subject), chain, deadline };
}

/** Text that is not a name does not belong in the log. */
const nameOr = (name: string | undefined): string => (name !== undefined && NAME.test(name) ? name : 'unknown');

function chainOf(grant: RouteContext['grant']): readonly string[] {
  const { chain = NO_CHAIN } = (grant ?? {}) as { readonly chain?: readonly string[] };
  return chain.length === 0 ? NO_CHAIN : chain.slice(-CHAIN_MAX).map(nameOr);
}

type Facts = Parameters<RouteContext['actsOn']>[0];

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
