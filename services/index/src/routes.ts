/**
 * The HTTP surface of index: one row per route, with its scope, lane, body mode, schema and handler.
 *
 * To add a route, add a row here and its schema and handler to a file in `routes/`.
 */
import { route, type Route } from '@ron/ingress';
import { TaskIdSchema, TaskSchema, TasksSchema } from '@ron/service';
import { adminHandlers, PinSchema, type AdminInit } from './routes/admin.ts';
import { announce, AnnouncedSchema, AnnounceSchema, type AnnounceInit } from './routes/announce.ts';
import { dhtStatus, DhtStatusSchema, type DhtStatusInit } from './routes/dht-status.ts';
import type { LookupRouteInit } from './routes/lookup.ts';
import { ProvidersSchema, ResolveSchema, RoutingSchema } from './routes/lookup-schemas.ts';
import { nameRoutes, type NameTableInit } from './routes/name-routes.ts';
import { providers, PROVIDERS } from './routes/providers.ts';
import { RESOLVE, resolve } from './routes/resolve.ts';
import { routing, ROUTING } from './routes/routing.ts';

export interface IndexRoutesInit extends LookupRouteInit, AnnounceInit, AdminInit, NameTableInit {
  readonly store: AnnounceInit['store'] & AdminInit['store'] & NameTableInit['store'];
  readonly names: AdminInit['names'] & NameTableInit['names'];
  readonly dhtStatus: DhtStatusInit;
}

/** Callers wait for a lookup outside of the listener's permits. */
const LOOKUP = { method: 'GET', scope: null, lane: 'inline', body: 'none', deadline: 'resolve' } as const;
const ADMIN = { scope: 'index:admin', lane: 'inline', body: 'none', deadline: 'publish' } as const;

export function routes(init: IndexRoutesInit): Route[] {
  return [
    ...lookupRoutes(init),
    ...nameRoutes(init),
    ...announceRoutes(init),
    ...adminRoutes(init),
    dhtRoute(init.dhtStatus),
  ];
}

function lookupRoutes(init: LookupRouteInit): Route[] {
  return [
    route({
      ...LOOKUP,
      path: '/resolve/*',
      summary: 'Resolves an address, or a name and its address, to the object and its ranked providers.',
      schema: { ...RESOLVE, response: { 200: ResolveSchema } },
      handler: (context) => resolve(init, context),
    }),
    route({
      ...LOOKUP,
      path: '/providers/:address',
      summary: 'Returns the providers of an address, ranked, or as ndjson in order of arrival.',
      schema: { ...PROVIDERS, response: { 200: ProvidersSchema } },
      handler: (context) => providers(init, context),
    }),
    route({
      ...LOOKUP,
      path: '/routing/v1/providers/:cid',
      summary: 'Returns the providers of a raw BLAKE3 CID (Delegated Routing V1).',
      schema: { ...ROUTING, response: { 200: RoutingSchema } },
      handler: (context) => routing(init, context),
    }),
  ];
}

function announceRoutes(init: AnnounceInit): Route[] {
  return [
    route({
      method: 'POST',
      path: '/announce',
      summary:
        'Announces and withdraws objects of this node. A changed epoch requests the announcement of all objects.',
      scope: 'index:announce',
      lane: 'inline',
      body: 'buffered',
      deadline: 'announce',
      schema: { body: AnnounceSchema, response: { 200: AnnouncedSchema } },
      handler: (context) => announce(init, context),
    }),
  ];
}

function dhtRoute(init: DhtStatusInit): Route {
  return route({
    ...ADMIN,
    method: 'GET',
    path: '/admin/dht',
    summary: 'Returns the state of this node in the DHT: addresses, peers and breakers.',
    schema: { response: { 200: DhtStatusSchema } },
    handler: () => dhtStatus(init),
  });
}

function adminRoutes(init: AdminInit): Route[] {
  const admin = adminHandlers(init);
  const pin = { method: 'POST', scope: 'index:pin', lane: 'inline', body: 'buffered', deadline: 'publish' } as const;
  return [
    route({
      ...pin,
      path: '/admin/pin',
      summary: 'Pins a key: its answer stays cached and is refreshed before it expires. Idempotent.',
      schema: { body: PinSchema },
      handler: admin.pins(true),
    }),
    route({
      ...pin,
      path: '/admin/unpin',
      summary: 'Unpins a key. Idempotent.',
      schema: { body: PinSchema },
      handler: admin.pins(false),
    }),
    route({
      ...ADMIN,
      method: 'POST',
      path: '/admin/reindex',
      summary: 'Empties the cache and begins a new announce epoch, or joins the run in progress.',
      schema: { response: { 202: TaskSchema } },
      handler: admin.reindex,
    }),
    route({
      ...ADMIN,
      method: 'GET',
      path: '/admin/tasks',
      summary: 'Lists the tasks, the newest first.',
      schema: { response: { 200: TasksSchema } },
      handler: admin.tasks,
    }),
    route({
      ...ADMIN,
      method: 'GET',
      path: '/admin/tasks/:id',
      summary: 'Returns a task.',
      schema: { params: TaskIdSchema, response: { 200: TaskSchema } },
      handler: admin.task,
    }),
  ];
}
