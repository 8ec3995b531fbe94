/** The HTTP surface of passport. */
import { parseCaveat, type RevocationDocument } from '@ron/auth';
import { empty, json, route, type AnswerHeaders, type Route } from '@ron/ingress';
import { assert } from '@ron/kernel';
import { type Log } from '@ron/telemetry';
import { SERVICES, type AccessFacts, type Service } from '@ron/proto';
import { Type } from 'typebox';
import type { Issuer } from './issuer.ts';
import type { PassportCounters } from './metrics.ts';
import type { RevocationRegistry } from './revocation-registry.ts';

export interface PassportRoutesInit {
  readonly issuer: Issuer;
  readonly registry: RevocationRegistry;
  readonly newerThan: (known: number | undefined, signal: AbortSignal) => Promise<RevocationDocument | undefined>;
  readonly count: PassportCounters;
  readonly log: Pick<Log, 'info'>;
}

const BASE = '/v1/passport';
const strict = { additionalProperties: false } as const;
/** Answers hold tokens, or are true for a moment only: no cache keeps them. */
const NO_STORE: AnswerHeaders = Object.freeze({ 'Cache-Control': 'no-store' });
const TTL_MS_MAX = 2 ** 53 - 1;

const audience = (name: Service) => Type.Literal(name);
const Audience = Type.Union(SERVICES.map(audience) as unknown as [ReturnType<typeof audience>]);
const Subject = Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' });
const ScopeText = Type.String({ maxLength: 64 });
const IssueBody = Type.Object(
  {
    audience: Audience,
    scopes: Type.Array(ScopeText, { minItems: 1, maxItems: 32 }),
    subject: Type.Optional(Subject),
    ttl_ms: Type.Optional(Type.Integer({ minimum: 1, maximum: TTL_MS_MAX })),
    caveats: Type.Optional(Type.Array(Type.String({ maxLength: 1024 }), { maxItems: 28 })),
  },
  strict,
);
const Issued = Type.Object(
  { token: Type.String(), capability_id: Type.String(), subject: Type.String(), expires_ms: Type.Integer() },
  strict,
);
const VerifyBody = Type.Object({ token: Type.String({ maxLength: 8192 }), scope: Type.Optional(ScopeText) }, strict);
const Verdict = Type.Object(
  {
    ok: Type.Boolean(),
    reason: Type.Optional(Type.String()),
    audience: Type.Optional(Type.String()),
    subject: Type.Optional(Type.String()),
    scopes: Type.Optional(Type.Array(Type.String())),
    expires_ms: Type.Optional(Type.Integer()),
    capability_id: Type.Optional(Type.String()),
  },
  strict,
);
const RevokeBody = Type.Union([
  Type.Object({ subject: Subject }, strict),
  Type.Object({ all: Type.Literal(true) }, strict),
]);
const Revoked = Type.Object({ subject: Type.Optional(Type.String()), epoch: Type.Integer() }, strict);
const Document = Type.Object(
  { version: Type.Integer(), all: Type.Integer(), subjects: Type.Record(Type.String(), Type.Integer()) },
  strict,
);

const post = { method: 'POST', lane: 'inline', body: 'buffered', deadline: 'issue' } as const;

export function routes(init: PassportRoutesInit): Route[] {
  const { issuer, registry, newerThan, count, log } = init;
  return [
    route({
      ...post,
      path: `${BASE}/issue`,
      summary: 'Issues a capability, which is never wider than the one that asks for it.',
      scope: 'passport:issue',
      facts_later: ['address', 'name', 'label', 'tenant'],
      schema: { body: IssueBody, response: { 201: Issued } },
      handler: async (context) => {
        const { body, grant, deadline } = context;
        context.actsOn(narrowest(body.caveats ?? []));
        assert(grant !== undefined, 'the route has a scope');
        const { token, capability_id, subject, expires_ms } = await issuer.issue(body, grant, deadline.signal);
        count.issued(body.audience);
        const by = grant.capability_id;
        log.info({ capability_id, subject, audience: body.audience, scopes: body.scopes, expires_ms, by }, 'issued');
        return json(201, { token, capability_id, subject, expires_ms }, NO_STORE);
      },
    }),
    route({
      ...post,
      path: `${BASE}/verify`,
      summary: 'Whether a capability is good now, for a scope.',
      scope: 'passport:verify',
      schema: { body: VerifyBody, response: { 200: Verdict } },
      handler: async ({ body, ip, deadline }) => {
        const verdict = await issuer.verify(body.token, body.scope, ip, deadline.signal);
        count.verified(verdict.ok);
        return json(200, verdict, NO_STORE);
      },
    }),
    route({
      ...post,
      path: `${BASE}/revoke`,
      summary: 'Refuses everything that was issued to a subject, or to anybody, until now.',
      scope: 'passport:revoke',
      schema: { body: RevokeBody, response: { 200: Revoked } },
      handler: async ({ body, grant, deadline }) => {
        const subject = 'subject' in body ? body.subject : undefined;
        const epoch = await registry.revoke(subject, deadline.signal);
        count.revoked(subject === undefined ? 'all' : 'subject');
        log.info({ subject: subject ?? 'all', epoch, by: grant?.capability_id }, 'revoked');
        return json(200, { ...(subject !== undefined && { subject }), epoch }, NO_STORE);
      },
    }),
    route({
      method: 'GET',
      path: `${BASE}/revocations`,
      summary: 'What is revoked, by hashes of names; held until there is more than `after`, for a second at most.',
      // It tells no name, and services must hear of it whatever became of their own capabilities.
      scope: null,
      lane: 'inline',
      body: 'none',
      deadline: 'hold',
      schema: {
        query: Type.Object({ after: Type.Optional(Type.String({ pattern: '^[0-9]{1,15}$' })) }, strict),
        response: { 200: Document },
      },
      handler: async ({ query, deadline }) => {
        const known = query.after === undefined ? undefined : Number(query.after);
        const document = await newerThan(known, deadline.signal);
        return document === undefined ? empty(204, NO_STORE) : json(200, document, NO_STORE);
      },
    }),
  ];
}

/** What is asked for acts on what it would be limited to: a limited issuer cannot issue beyond its own limits. */
function narrowest(caveats: readonly string[]): AccessFacts {
  const facts: { -readonly [name in keyof AccessFacts]: string } = {};
  for (const text of caveats) {
    const caveat = parseCaveat(text);
    if (!caveat.ok) continue; // Minting says what is wrong with it.
    const { value } = caveat;
    if (value.key === 'tenant') facts.tenant ??= value.tenant;
    if (value.key === 'address' || value.key === 'name' || value.key === 'label') {
      if (value.prefix.length >= (facts[value.key]?.length ?? 0)) facts[value.key] = value.prefix;
    }
  }
  return facts;
}
