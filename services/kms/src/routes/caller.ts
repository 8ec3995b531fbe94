/** The caller of a request, and the check of its capability against the key that the request names. */
import { AUDIENCE_LABEL, AUDIENCE_TENANT } from '@ron/auth';
import type { RouteContext } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { Attempt, Auditor, Caller } from '../audit/auditor.ts';
import { tenantOf } from '../keys/kid.ts';

const NAME = /^[\w.:-]{1,128}$/;
const NO_CHAIN: readonly string[] = [];

export function callerOf({ grant, deadline }: Pick<RouteContext, 'grant' | 'deadline'>): Caller {
  const { capability_id, subject, chain = NO_CHAIN } = grant ?? {};
  return { actor: nameOr(capability_id), subject: nameOr(subject), chain, deadline };
}

/** Text that is not a name does not belong in the log. */
const nameOr = (name: string | undefined): string => (name !== undefined && NAME.test(name) ? name : 'unknown');

type Facts = Parameters<RouteContext['actsOn']>[0];

/** The facts of a kid, or of the prefix of kids to be made: a capability may be limited to a tenant, and to names. */
export function factsOf(kid: string): { readonly tenant: string; readonly name: string } {
  return { tenant: tenantOf(kid), name: kid };
}

/**
 * Throws when the capability does not allow the operation, or when the operation names something that is reserved for the
 * node: its tenant, or the labels of audience keys. The refused attempts are recorded in the audit log.
 */
export function requireAllowed(
  auditor: Pick<Auditor, 'recordRefusal'>,
  context: Pick<RouteContext, 'actsOn' | 'grant' | 'deadline'>,
  facts: Facts,
  attempts: () => readonly Attempt[],
): void {
  const check = (): void => {
    context.actsOn(facts);
    requireUnreserved(facts);
  };
  orRecordRefusal(auditor, context, check, attempts);
}

/** Every route about ordinary keys checks this, so that no capability for them reaches the audience root. */
export function requireUnreserved({ tenant, label }: Facts): void {
  if (tenant === AUDIENCE_TENANT)
    throw new RonError('forbidden', `the tenant ${AUDIENCE_TENANT} is reserved for the node`);
  if (label?.startsWith(AUDIENCE_LABEL) === true) {
    throw new RonError('forbidden', `labels that begin with ${AUDIENCE_LABEL} are reserved for the node`);
  }
}

/** Runs the check, and records the attempts if it throws. */
export function orRecordRefusal(
  auditor: Pick<Auditor, 'recordRefusal'>,
  context: Pick<RouteContext, 'grant' | 'deadline'>,
  check: () => void,
  attempts: () => readonly Attempt[],
): void {
  try {
    check();
  } catch (error) {
    for (const attempt of attempts()) auditor.recordRefusal(callerOf(context), attempt, error);
    throw error;
  }
}
