/** Handlers of passport. Their responses contain tokens or short-lived facts, so they are never cached. */
import { parseCaveat, type RevocationAnswer, type RevocationDocument, type RevocationPoll } from '@ron/auth';
import type { AccessFacts, AccessGrant, EntryActor, IssueEntry } from '@ron/proto';
import { json, type AnswerHeaders, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { assert, sched } from '@ron/kernel';
import { type Log } from '@ron/telemetry';
import type { Exchange } from '../exchange.ts';
import type { Issuer } from '../issuer.ts';
import type { PassportCounters } from '../metrics.ts';
import { newOpId } from '../audit/entries.ts';
import type { OutboxSender } from '../audit/outbox.ts';
import type { EntryOf, RevocationRegistry, RevocationTarget } from '../revocation-registry.ts';
import type * as schemas from './schemas.ts';

export interface PassportRoutesInit {
  readonly issuer: Issuer;
  readonly exchanges: Exchange;
  readonly registry: RevocationRegistry;
  readonly newerThan: (known: number | undefined, signal: AbortSignal) => Promise<RevocationDocument | undefined>;
  readonly sign: (
    poll: RevocationPoll,
    document: RevocationDocument | undefined,
    signal: AbortSignal,
  ) => Promise<RevocationAnswer>;
  /** Resolves when the entry of an issued capability is in the audit log; undefined without kms. */
  readonly recordIssue: ((entry: IssueEntry, signal: AbortSignal) => Promise<void>) | undefined;
  /** Sends the entries of revocations; undefined without kms. */
  readonly outbox: Pick<OutboxSender, 'notify'> | undefined;
  readonly count: PassportCounters;
  readonly log: Pick<Log, 'debug' | 'info'>;
}

const NO_STORE: AnswerHeaders = Object.freeze({ 'Cache-Control': 'no-store' });

export async function issue(
  { issuer, recordIssue, count, log }: PassportRoutesInit,
  context: RouteContext<typeof schemas.ISSUE>,
): Promise<RouteAnswer> {
  const { body, grant, deadline } = context;
  context.actsOn(narrowest(body.caveats ?? []));
  assert(grant !== undefined, 'the route has a scope');
  const { audience, scopes } = body;
  const { token, capability_id, subject, expires_ms } = await issuer.issue(body, grant, deadline.signal);
  const facts = { capability_id, subject, audience, scopes, expires_ms };
  // The token leaves only after its entry is durable.
  await recordIssue?.({ ...facts, op: 'issue', op_id: newOpId(), ...entryBy(grant) }, deadline.signal);
  count.issued(audience);
  log.info({ ...facts, by: grant.capability_id }, 'issued');
  return json(201, { token, capability_id, subject, expires_ms }, NO_STORE);
}

export async function verify(
  { issuer, count }: PassportRoutesInit,
  { body, ip, deadline }: RouteContext<typeof schemas.VERIFY>,
): Promise<RouteAnswer> {
  const verdict = await issuer.verify(body.token, body.scope, ip, deadline.signal);
  count.verified(verdict.ok);
  return json(200, verdict, NO_STORE);
}

/**
 * One for each `/put` and each newly read object of a client: an entry of kms for each would take longer than the request.
 * Counted, and logged at the level debug. The id of the client's capability is in the chain of the result, and its issue is in
 * the audit log.
 */
export async function exchange(
  { exchanges, count, log }: PassportRoutesInit,
  { body, grant, deadline }: RouteContext<typeof schemas.EXCHANGE>,
): Promise<RouteAnswer> {
  const verdict = await exchanges.exchange(body, deadline.signal);
  count.exchanged(body.scope, verdict.ok);
  if (verdict.ok) {
    const { capability_id, subject, expires_ms } = verdict;
    log.debug({ capability_id, subject, scope: body.scope, expires_ms, by: grant?.capability_id }, 'exchanged');
  } else log.debug({ scope: body.scope, reason: verdict.reason, by: grant?.capability_id }, 'exchange refused');
  return json(200, verdict, NO_STORE);
}

export async function revoke(
  { registry, outbox, count, log }: PassportRoutesInit,
  { body, grant, deadline }: RouteContext<typeof schemas.REVOKE>,
): Promise<RouteAnswer> {
  assert(grant !== undefined, 'the route has a scope');
  const target: RevocationTarget = 'all' in body ? 'all' : body;
  const named = target === 'all' ? {} : target;
  const entryOf: EntryOf = (epoch) => ({ ...named, op: 'revoke', op_id: newOpId(), epoch, ...entryBy(grant) });
  const epoch = await registry.revoke(target, deadline.signal, outbox && entryOf);
  outbox?.notify();
  count.revoked(target === 'all' ? 'all' : 'subject' in target ? 'subject' : 'id');
  log.info({ ...(target === 'all' ? { subject: 'all' } : target), epoch, by: grant.capability_id }, 'revoked');
  return json(200, { ...named, epoch }, NO_STORE);
}

/** The members of an entry that name the capability of the request. */
function entryBy({ capability_id, subject, chain }: AccessGrant): { by: EntryActor; time_ms: number } {
  return { by: { capability_id, subject, chain }, time_ms: sched.wall_ms() };
}

export async function readRevocations(
  { newerThan, sign }: PassportRoutesInit,
  { query, deadline }: RouteContext<typeof schemas.REVOCATIONS>,
): Promise<RouteAnswer> {
  const { audience, nonce } = query;
  const after = query.after === undefined ? undefined : Number(query.after);
  const document = await newerThan(after, deadline.signal);
  return json(200, await sign({ audience, nonce, after }, document, deadline.signal), NO_STORE);
}

/** The facts of an issue request are its own caveats: a limited issuer cannot issue beyond its limits. */
function narrowest(caveats: readonly string[]): AccessFacts {
  const facts: { -readonly [name in keyof AccessFacts]: string } = {};
  for (const text of caveats) {
    const caveat = parseCaveat(text);
    if (!caveat.ok) continue; // `mint` reports the error.
    const { value } = caveat;
    if (value.key === 'tenant') facts.tenant ??= value.tenant;
    if (value.key === 'address' || value.key === 'name' || value.key === 'label') {
      if (value.prefix.length >= (facts[value.key]?.length ?? 0)) facts[value.key] = value.prefix;
    }
  }
  return facts;
}
