/**
 * Handlers for the keys that verify capabilities and for their root. Their responses are never cached.
 *
 * Contract: they do not require a sound audit log: services must get their keys, and a root must be retired, at any time.
 */
import { AUDIENCE_ROOT, audienceLabel, audiencePrefix, type RootState } from '@ron/auth';
import { json, type RouteAnswer, type RouteContext } from '@ron/ingress';
import type { Deadline } from '@ron/kernel';
import type { AccessFacts } from '@ron/proto';
import type { AudienceKeys } from '../audience/audience-keys.ts';
import type { Auditor, Caller } from '../audit/auditor.ts';
import type { AuditOp } from '../audit/event.ts';
import { toBase64 } from '../base64.ts';
import { formatKid } from '../keys/kid.ts';
import { AUDIENCE_TENANT } from '@ron/auth';
import { callerOf, orRecordRefusal } from './caller.ts';
import { NO_STORE } from './no-store.ts';
import type * as schemas from './schemas.ts';

export interface AudienceRoutesInit {
  readonly audience: AudienceKeys<Caller>;
  /** Called before a rotation is answered. Does not reject. */
  readonly onRotated: (signal: AbortSignal) => Promise<void>;
  readonly auditor: Pick<Auditor, 'recordRefusal'>;
  /** Runs the work when the fair queue reaches it. */
  readonly enqueue: <A>(tenant: string, deadline: Deadline, work: () => Promise<A>) => Promise<A>;
  /** Retries idempotent work within the deadline. */
  readonly retry: <A>(op: 'derive', deadline: Deadline, work: (signal: AbortSignal) => Promise<A>) => Promise<A>;
}

export async function readRoot({ audience }: AudienceRoutesInit, { deadline }: RouteContext): Promise<RouteAnswer> {
  return stateView(await audience.state(deadline.signal));
}

export async function deriveAudienceKey(
  init: AudienceRoutesInit,
  context: RouteContext<typeof schemas.AUDIENCE_DERIVE>,
): Promise<RouteAnswer> {
  const { audience, version } = context.body;
  const label = version === undefined ? audiencePrefix(audience) : audienceLabel(audience, version);
  requireRoot(init, context, 'derive', { label }, version);
  const caller = callerOf(context);
  const derived = await init.enqueue(AUDIENCE_TENANT, context.deadline, () =>
    init.retry('derive', context.deadline, (signal) => init.audience.derive(audience, version, caller, signal)),
  );
  const { version: used, version_min: min_version, secret } = derived;
  const secret_b64 = toBase64(secret);
  secret.fill(0);
  return json(200, { version: used, min_version, secret_b64 }, NO_STORE);
}

export async function rotateRoot(
  init: AudienceRoutesInit,
  context: RouteContext<typeof schemas.AUDIENCE_ROTATE>,
): Promise<RouteAnswer> {
  const { version } = context.body;
  requireRoot(init, context, 'rotate', {}, version);
  const { signal } = context.deadline;
  const rotate = (): Promise<RootState> => init.audience.rotate(version, callerOf(context), signal);
  const state = await init.enqueue(AUDIENCE_TENANT, context.deadline, rotate);
  await init.onRotated(signal);
  return stateView(state);
}

export async function retireRoot(
  init: AudienceRoutesInit,
  context: RouteContext<typeof schemas.AUDIENCE_RETIRE>,
): Promise<RouteAnswer> {
  const { min_version } = context.body;
  requireRoot(init, context, 'retire', {}, min_version);
  return stateView(await init.audience.retire(min_version, callerOf(context), context.deadline.signal));
}

function requireRoot(
  { auditor }: AudienceRoutesInit,
  context: Pick<RouteContext, 'actsOn' | 'grant' | 'deadline'>,
  op: AuditOp,
  facts: AccessFacts,
  version = 1,
): void {
  const attempt = { op, kid: formatKid(AUDIENCE_ROOT, version) };
  orRecordRefusal(
    auditor,
    context,
    () => context.actsOn(facts),
    () => [attempt],
  );
}

function stateView({ version, version_min, root_id }: RootState): RouteAnswer {
  return json(200, { version, min_version: version_min, root_id }, NO_STORE);
}
