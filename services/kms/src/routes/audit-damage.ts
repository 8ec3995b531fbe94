/** Handlers that show the damage of an audit log and accept it. */
import { json, type RouteAnswer, type RouteContext } from '@ron/ingress';
import type { AcceptedAudit, AuditStatus } from '@ron/proto';
import type { AcceptRequest, Caller } from '../audit/audit.ts';
import { callerOf } from './caller.ts';
import { NO_STORE } from './no-store.ts';
import type * as schemas from './schemas.ts';

export interface AuditDamageInit {
  readonly status: (caller: Pick<Caller, 'deadline'>) => Promise<AuditStatus>;
  readonly accept: (request: AcceptRequest, caller: Caller) => Promise<AcceptedAudit>;
}

export async function readStatus(
  { status }: AuditDamageInit,
  { deadline }: Pick<RouteContext, 'deadline'>,
): Promise<RouteAnswer> {
  return json(200, await status({ deadline }), NO_STORE);
}

export async function acceptDamage(
  { accept }: AuditDamageInit,
  context: RouteContext<typeof schemas.ACCEPT>,
): Promise<RouteAnswer> {
  return json(202, await accept(context.body, callerOf(context)), NO_STORE);
}
