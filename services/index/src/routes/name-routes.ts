/** The rows of names, trust and the name log. */
import { route, type Route } from '@ron/ingress';
import { LOG_TILE, logAnswers, type LogAnswersInit } from '@ron/service';
import { LIST_NAMES, listNames, PUT_NAME, putName, READ_NAME, readName, type NameRoutesInit } from './names.ts';
import {
  LIST_TRUST,
  listTrust,
  PUT_TRUST,
  putTrust,
  REMOVE_TRUST,
  removeTrust,
  type TrustRoutesInit,
} from './trust.ts';

export type NameTableInit = NameRoutesInit & TrustRoutesInit & Pick<LogAnswersInit, 'log'>;

/** Changes wait for the publisher, reads for the database or a lookup, which has the shorter deadline. */
const INLINE = { lane: 'inline', deadline: 'publish' } as const;
/** Trust decides which key speaks for a label, so publishing alone must not change it. */
const ADMIN = { ...INLINE, scope: 'index:admin' } as const;
/** A capability may be limited to labels. */
const byName: NonNullable<Route['facts']> = ({ params }) => ({ name: params['*'] });

export function nameRoutes(init: NameTableInit): Route[] {
  return [...namesRoutes(init), ...trustRoutes(init), ...logRoutes(init)];
}

function namesRoutes(init: NameRoutesInit): Route[] {
  return [
    route({
      ...INLINE,
      method: 'GET',
      path: '/names/*',
      scope: null,
      body: 'none',
      summary: 'Returns the signed record of `<label>` or `<label>@<key>`, with a contradicting one and its history.',
      schema: READ_NAME,
      handler: (context) => readName(init, context),
    }),
    route({
      ...INLINE,
      method: 'PUT',
      path: '/names/*',
      scope: 'index:name',
      body: 'buffered',
      summary: 'Publishes a signed record. 201: new; 200: it is already current; 409: it does not follow `current`.',
      facts: byName,
      schema: PUT_NAME,
      handler: (context) => putName(init, context),
    }),
    route({
      ...INLINE,
      method: 'GET',
      path: '/names',
      scope: 'index:name',
      body: 'none',
      summary: 'Lists the names that this node published, in order.',
      facts: ({ query }) => ({ name: query['prefix'] ?? '' }),
      schema: LIST_NAMES,
      handler: (context) => listNames(init, context),
    }),
  ];
}

function trustRoutes(init: TrustRoutesInit): Route[] {
  return [
    route({
      ...ADMIN,
      method: 'GET',
      path: '/trust',
      body: 'none',
      summary: 'Lists the trusted keys with their prefixes.',
      schema: LIST_TRUST,
      handler: () => listTrust(init),
    }),
    route({
      ...ADMIN,
      method: 'PUT',
      path: '/trust/*',
      body: 'buffered',
      summary: 'Trusts a key for the bare labels below a prefix. The empty prefix is the own key of the node.',
      facts: byName,
      schema: PUT_TRUST,
      handler: (context) => putTrust(init, context),
    }),
    route({
      ...ADMIN,
      method: 'DELETE',
      path: '/trust/*',
      body: 'none',
      summary: 'Removes a prefix from the trust list.',
      facts: byName,
      schema: REMOVE_TRUST,
      handler: (context) => removeTrust(init, context),
    }),
  ];
}

/** C2SP tlog-tiles. */
function logRoutes({ log }: Pick<LogAnswersInit, 'log'>): Route[] {
  const answers = logAnswers({ name: 'name log', log });
  return [
    route({
      ...ADMIN,
      method: 'GET',
      path: '/log/checkpoint',
      body: 'none',
      summary: 'Returns the latest checkpoint of the name log, a signed note.',
      handler: answers.checkpoint,
    }),
    route({
      ...ADMIN,
      method: 'GET',
      path: '/log/tile/*',
      body: 'none',
      summary: 'Returns a tile of hashes of the name log, or a bundle of entries below `entries/`.',
      schema: LOG_TILE,
      handler: answers.tile,
    }),
  ];
}
