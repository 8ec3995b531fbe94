/** The HTTP surface of passport: one row per route, with its scope, lane, deadline, schema and handler. */
import { route, type Route } from '@ron/ingress';
import { exchange, issue, readRevocations, revoke, verify, type PassportRoutesInit } from './routes/handlers.ts';
import * as schemas from './routes/schemas.ts';

const BASE = '/v1/passport';
const POST = { method: 'POST', lane: 'inline', body: 'buffered', deadline: 'issue' } as const;

export function routes(init: PassportRoutesInit): Route[] {
  return [
    route({
      ...POST,
      path: `${BASE}/issue`,
      scope: 'passport:issue',
      summary: 'Issues a capability, which is never wider than the issuing one.',
      facts_later: ['address', 'name', 'label', 'tenant'],
      schema: schemas.ISSUE,
      handler: (context) => issue(init, context),
    }),
    route({
      ...POST,
      path: `${BASE}/verify`,
      scope: 'passport:verify',
      summary: 'Verifies a capability for a scope.',
      schema: schemas.VERIFY,
      handler: (context) => verify(init, context),
    }),
    route({
      ...POST,
      path: `${BASE}/exchange`,
      scope: 'passport:exchange',
      summary:
        'Exchanges the capability of a client of interop for one of storage, never wider and for one minute at most.',
      schema: schemas.EXCHANGE,
      handler: (context) => exchange(init, context),
    }),
    route({
      ...POST,
      path: `${BASE}/revoke`,
      scope: 'passport:revoke',
      summary:
        'Revokes all capabilities issued so far to a subject or to all subjects, or one with all that was issued from it.',
      schema: schemas.REVOKE,
      handler: (context) => revoke(init, context),
    }),
    route({
      method: 'GET',
      path: `${BASE}/revocations`,
      // It contains no names, and services must get it even if their own capabilities were revoked.
      scope: null,
      lane: 'inline',
      body: 'none',
      deadline: 'hold',
      summary:
        'Returns the revocations, authenticated for the audience. Held for up to a second until there is a version after `after`.',
      schema: schemas.REVOCATIONS,
      handler: (context) => readRevocations(init, context),
    }),
  ];
}
