/**
 * `/admin/providers`: the providers, their secrets, and signed samples.
 *
 * Contract: no answer and no error holds a secret; the bytes of a body with one are zeroed before the handler waits. Each change is
 * an audit event, which `audit.sink=memory` drops.
 */
import { empty, json, newCorrId, route, type Route, type RouteContext } from '@ron/ingress';
import { RonError, sched } from '@ron/kernel';
import type { AcceptedWebhook } from '@ron/proto';
import type { AuditEvent } from '../audit/audit-event.ts';
import { closedProvider, unknownProvider } from '../providers/provider-table.ts';
import type { Provider, Providers } from '../providers/providers.ts';
import type { Intake } from '../webhooks/intake.ts';
import { signSample } from '../signatures/sign-sample.ts';
import {
  AcceptedSample,
  ProviderAnswer,
  ProviderBody,
  ProviderList,
  ProviderParams,
  RotateBody,
} from './provider-schemas.ts';

export interface ProviderRoutesInit {
  readonly providers: Pick<Providers, 'get' | 'list' | 'describe' | 'put' | 'rotate' | 'remove'>;
  readonly intake: Pick<Intake, 'deliverSample'>;
  /** Hands an event to the audit channel; never waits. */
  readonly audit: (event: AuditEvent) => void;
}

const NO_STORE = { 'Cache-Control': 'no-store' } as const;
const ADMIN = { scope: 'interop:admin', lane: 'inline' } as const;
const BODY_BYTES_MAX = 64 * 1024;
const PATH = '/admin/providers/:name';
const CHANGE = {
  ...ADMIN,
  deadline: 'provider',
  body_bytes_max: BODY_BYTES_MAX,
  decoded_bytes_max: BODY_BYTES_MAX,
} as const;

export function providerRoutes(init: ProviderRoutesInit): Route[] {
  return [...readRoutes(init), putRoute(init), removeRoute(init), rotateRoute(init), testRoute(init)];
}

function readRoutes({ providers }: ProviderRoutesInit): Route[] {
  const GET = { ...ADMIN, method: 'GET', body: 'none' } as const;
  return [
    route({
      ...GET,
      path: '/admin/providers',
      summary: 'Lists the providers with age, end and uses of their secrets.',
      schema: { response: { 200: ProviderList } },
      handler: () => json(200, { providers: providers.list() }, NO_STORE),
    }),
    route({
      ...GET,
      path: PATH,
      summary: 'Shows a provider with age, end and uses of its secrets.',
      schema: { params: ProviderParams, response: { 200: ProviderAnswer } },
      handler: ({ params }) => json(200, providers.describe(params.name), NO_STORE),
    }),
  ];
}

function putRoute(init: ProviderRoutesInit): Route {
  return route({
    ...CHANGE,
    method: 'PUT',
    path: PATH,
    summary:
      'Adds a provider, or replaces it. Without a secret it keeps its secrets; a new secret ends all others at once.',
    body: 'buffered',
    schema: { params: ProviderParams, body: ProviderBody, response: { 200: ProviderAnswer, 201: ProviderAnswer } },
    handler: async (context) => {
      const { name } = context.params;
      zeroBody(context);
      const { created, provider } = await init.providers.put(name, context.body, context.deadline.signal);
      record(init, context, created ? 'add provider' : 'replace provider');
      return json(created ? 201 : 200, provider, NO_STORE);
    },
  });
}

function removeRoute(init: ProviderRoutesInit): Route {
  return route({
    ...CHANGE,
    method: 'DELETE',
    path: PATH,
    summary: 'Removes a provider with its secrets. Its messages and receipts stay.',
    body: 'none',
    schema: { params: ProviderParams },
    statuses: [204],
    handler: async (context) => {
      await init.providers.remove(context.params.name, context.deadline.signal);
      record(init, context, 'remove provider');
      return empty(204, NO_STORE);
    },
  });
}

function rotateRoute(init: ProviderRoutesInit): Route {
  return route({
    ...CHANGE,
    method: 'POST',
    path: `${PATH}/rotate`,
    summary: 'Adds a secret. The previous one stays valid for `overlap_ms`; 409 while two are live, unless that is 0.',
    body: 'buffered',
    schema: { params: ProviderParams, body: RotateBody, response: { 200: ProviderAnswer } },
    handler: async (context) => {
      zeroBody(context);
      const provider = await init.providers.rotate(context.params.name, context.body, context.deadline.signal);
      record(init, context, 'rotate secret');
      return json(200, provider, NO_STORE);
    },
  });
}

function testRoute(init: ProviderRoutesInit): Route {
  return route({
    ...ADMIN,
    method: 'POST',
    path: `${PATH}/test`,
    summary: 'Delivers a sample that is signed with the newest HMAC secret; its message has the header `ron-test`.',
    body: 'none',
    deadline: 'request',
    schema: { params: ProviderParams, response: { 200: AcceptedSample } },
    handler: async (context) => {
      const accepted = await deliverSample(init, context.params.name, context);
      record(init, context, 'test provider');
      return json(200, accepted, NO_STORE);
    },
  });
}

async function deliverSample(
  { providers, intake }: ProviderRoutesInit,
  name: string,
  context: RouteContext,
): Promise<AcceptedWebhook> {
  const provider = providers.get(name);
  if (provider === undefined) throw unknownProvider();
  const id = newCorrId();
  // Unique in every scheme, so that no sample is a duplicate.
  const body = Buffer.from(JSON.stringify({ id: `evt_${id}`, event_id: `Ev${id}`, type: 'ron.test' }));
  const { scheme, generic } = provider.descriptor;
  const signed = signSample({
    scheme,
    generic,
    key: samplingKey(provider),
    body,
    wall_ms: sched.wall_ms(),
    id: `ron_${id}`,
  });
  return await intake.deliverSample(name, { 'content-type': 'application/json', ...signed }, body, context);
}

function samplingKey({ secrets, problem }: Provider) {
  if (problem !== undefined) throw closedProvider(problem);
  const secret = secrets.find(({ kind }) => kind === 'hmac');
  if (secret === undefined)
    throw new RonError(
      'validation',
      'the provider has public keys only, which cannot sign a sample: let the provider send one',
    );
  return secret.key;
}

/** Its JSON text is a string that cannot be zeroed; the raw bytes can. */
function zeroBody({ body_bytes }: Pick<RouteContext, 'body_bytes'>): void {
  body_bytes?.fill(0);
}

function record(
  { audit }: ProviderRoutesInit,
  { params, grant, corr_id }: Pick<RouteContext, 'grant' | 'corr_id'> & { readonly params: { readonly name: string } },
  action: string,
): void {
  const { subject, capability_id } = grant!;
  audit({ kind: 'admin', at_ms: sched.wall_ms(), action, provider: params.name, subject, capability_id, corr_id });
}
