/** Handlers of passport. Their responses contain tokens or short-lived facts, so they are never cached. */
import { parseCaveat, type RevocationAnswer, type RevocationDocument, type RevocationPoll } from '@ron/auth';
import type { AccessFacts } from '@ron/proto';
import { json, type AnswerHeaders, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { assert } from '@ron/kernel';
import { type Log } from '@ron/telemetry';
import type { Issuer } from '../issuer.ts';
import type { PassportCounters } from '../metrics.ts';
import type { RevocationRegistry, RevocationTarget } from '../revocation-registry.ts';
import type * as schemas from './schemas.ts';

export interface PassportRoutesInit {
  readonly issuer: Issuer;
  readonly registry: RevocationRegistry;
  readonly newerThan: (known: number | undefined, signal: AbortSignal) => Promise<RevocationDocument | undefined>;
  readonly sign: (
    poll: RevocationPoll,
    document: RevocationDocument | undefined,
    signal: AbortSignal,
  ) => Promise<RevocationAnswer>;
  readonly count: PassportCounters;
  readonly log: Pick<Log, 'info'>;
}

const NO_STORE: AnswerHeaders = Object.freeze({ 'Cache-Control': 'no-store' });

export async function issue(
  { issuer, count, log }: PassportRoutesInit,
  context: RouteContext<typeof schemas.ISSUE>,
): Promise<RouteAnswer> {
  const { body, grant, deadline } = context;
  context.actsOn(narrowest(body.caveats ?? []));
  assert(grant !== undefined, 'the route has a scope');
  const { token, capability_id, subject, expires_ms } = await issuer.issue(body, grant, deadline.signal);
  count.issued(body.audience);
  const by = grant.capability_id;
  log.info({ capability_id, subject, audience: body.audience, scopes: body.scopes, expires_ms, by }, 'issued');
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

export async function revoke(
  { registry, count, log }: PassportRoutesInit,
  { body, grant, deadline }: RouteContext<typeof schemas.REVOKE>,
): Promise<RouteAnswer> {
  const target: RevocationTarget = 'all' in body ? 'all' : body;
  const epoch = await registry.revoke(target, deadline.signal);
  count.revoked(target === 'all' ? 'all' : 'subject' in target ? 'subject' : 'id');
  const named = target === 'all' ? {} : target;
  log.info({ ...(target === 'all' ? { subject: 'all' } : target), epoch, by: grant?.capability_id }, 'revoked');
  return json(200, { ...named, epoch }, NO_STORE);
}

export async function readRevocations(
  { newerThan, sign }: PassportRoutesInit,
  { query, deadline }: RouteContext<typeof schemas.REVOCATIONS>,
): Promise<RouteAnswer> {
  const { audience, nonce, after } = query;
  const document = await newerThan(after === undefined ? undefined : Number(after), deadline.signal);
  return json(200, await sign({ audience, nonce }, document, deadline.signal), NO_STORE);
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
