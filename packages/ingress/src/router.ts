/**
 * Routing, validation and serialization: the part of the pipeline that Fastify does, and nothing else of it.
 *
 * Promise: each row of the table becomes a route whose checks run in the declared order; a known path with another
 * method is 405 with `Allow`; everything that goes wrong ends in `fail` of the pipeline, never in Fastify's own answers.
 * Bound: as the pipeline's. Cancellation: as the exchange's.
 */
import type { RequestListener, Server } from 'node:http';
import { RonError } from '@ron/kernel';
import Fastify from 'fastify';
import type { FastifyBodyParser, FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from 'fastify';
import { Exchange } from './exchange.ts';
import { LAZY_SCHEMAS } from './lazy-schemas.ts';
import { registerOpenapi } from './openapi.ts';
import type { OpenapiInfo } from './openapi.ts';
import type { Pipeline } from './pipeline.ts';
import type { RouteParts } from './prepared-route.ts';
import type { Validate } from './route-errors.ts';
import type { Route } from './routes.ts';
import { routeName } from './routes.ts';

/** A key id in a path is percent-encoded and long. */
const PARAM_LENGTH_MAX = 1024;
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

export interface RouterInit {
  readonly routes: readonly Route[];
  readonly pipeline: Pipeline;
  readonly openapi: OpenapiInfo;
  /** The server that Fastify believes to own; it only ever listens through us. */
  readonly server: Server;
}

export interface Router {
  /** Routes a request whose exchange has been attached to its response. */
  readonly handle: RequestListener;
  readonly openapi_json: string;
  close(): Promise<void>;
}

export async function buildRouter(init: RouterInit): Promise<Router> {
  const { pipeline } = init;
  let handle: RequestListener | undefined;
  const app = Fastify({
    serverFactory: (handler) => {
      handle = handler;
      return init.server;
    },
    logger: false,
    forceCloseConnections: false,
    return503OnClosing: false,
    // The listener answers those; the default would write a second answer and reset the connection.
    clientErrorHandler: () => undefined,
    exposeHeadRoutes: true,
    routerOptions: { maxParamLength: PARAM_LENGTH_MAX, caseSensitive: true, ignoreTrailingSlash: false },
    ajv: { customOptions: { removeAdditional: false, coerceTypes: false, useDefaults: true, allErrors: false } },
    schemaController: LAZY_SCHEMAS,
    frameworkErrors: (error, request, reply) => {
      reply.hijack();
      pipeline.fail(exchangeOf(request), error);
    },
  });
  app.setErrorHandler((error, request, reply) => {
    reply.hijack();
    pipeline.fail(exchangeOf(request), error);
  });
  app.setNotFoundHandler((request, reply) => {
    reply.hijack();
    pipeline.fail(exchangeOf(request), new RonError('not_found', 'no such route'));
  });
  app.removeAllContentTypeParsers();
  // Routes never get here: they take their bodies themselves. What no route answers for keeps its body unread.
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  // Refuses `__proto__` and `constructor.prototype` keys.
  const parseJson = jsonParser(app.getDefaultJsonParser('error', 'error'));
  await registerOpenapi(app, init.openapi);
  // A plugin sees only the routes that are declared after it has loaded.
  await app.register(async (scope) => addRoutes(scope, init.routes, pipeline, parseJson));
  await app.ready();
  return {
    handle: handle!,
    openapi_json: JSON.stringify(app.swagger()),
    close: () => app.close(),
  };
}

function exchangeOf(request: FastifyRequest): Exchange {
  return Exchange.of(request.raw)!;
}

type ParseJson = (text: string) => unknown;

function addRoutes(app: FastifyInstance, routes: readonly Route[], pipeline: Pipeline, parseJson: ParseJson): void {
  const methods_by_path = new Map<string, string[]>();
  for (const row of routes) {
    addRoute(app, row, pipeline, parseJson);
    const methods = methods_by_path.get(row.path) ?? [];
    methods.push(row.method);
    methods_by_path.set(row.path, methods);
  }
  for (const [path, methods] of methods_by_path) refuseOtherMethods(app, path, methods);
}

function addRoute(app: FastifyInstance, row: Route, pipeline: Pipeline, parseJson: ParseJson): void {
  const prepared = pipeline.prepare(row);
  app.route({
    method: row.method,
    url: row.path,
    schema: schemaOf(row),
    // The first hook takes the exchange over: the rest of Fastify's course through a request is not needed.
    onRequest: (request, reply) => {
      if (!prepared.isCompiled) {
        prepared.parts = compiledParts(request, reply, parseJson);
        prepared.isCompiled = true;
      }
      reply.hijack();
      const exchange = exchangeOf(request);
      exchange.params = request.params as Readonly<Record<string, string>>;
      exchange.query = request.query as Readonly<Record<string, string>>;
      pipeline.begin(exchange, prepared);
    },
    handler: () => undefined,
  });
}

function schemaOf(row: Route): FastifySchema {
  const { params, query, body, response } = row.schema ?? {};
  return {
    summary: row.summary,
    operationId: routeName(row),
    ...(row.tags === undefined ? {} : { tags: [...row.tags] }),
    ...(row.scope === null ? {} : { security: [{ capability: [row.scope] }] }),
    ...(params === undefined ? {} : { params }),
    ...(query === undefined ? {} : { querystring: query }),
    ...(body === undefined ? {} : { body }),
    ...(response === undefined ? {} : { response }),
  };
}

/** What Fastify compiled from the schemas of a route; it hands them out only through a request of that route. */
function compiledParts(request: FastifyRequest, reply: FastifyReply, parseJson: ParseJson): RouteParts {
  const part = (name: 'params' | 'querystring' | 'body'): Validate | undefined =>
    request.getValidationFunction(name) as Validate | undefined;
  const serializers = new Map<number, (value: unknown) => string>();
  const serializerOf = (status: number): ((value: unknown) => string) =>
    (reply.getSerializationFunction(String(status)) as ((value: unknown) => string) | undefined) ?? JSON.stringify;
  return {
    params: part('params'),
    query: part('querystring'),
    body: part('body'),
    parseJson,
    serialize: (status, value) => {
      let serialize = serializers.get(status);
      if (serialize === undefined) {
        serialize = serializerOf(status);
        serializers.set(status, serialize);
      }
      return serialize(value);
    },
  };
}

function jsonParser(parse: FastifyBodyParser<string>): ParseJson {
  return (text) => {
    let value: unknown;
    let failure: Error | null = null;
    void parse(undefined as never, text, (error, parsed) => {
      failure = error;
      value = parsed;
    });
    if (failure !== null) throw new RonError('bad_request', 'the body is not JSON', { cause: failure });
    return value;
  };
}

function refuseOtherMethods(app: FastifyInstance, path: string, methods: readonly string[]): void {
  const allow = methods.includes('GET') ? [...methods, 'HEAD'] : [...methods];
  const others = METHODS.filter((method) => !methods.includes(method));
  const refused = allow.includes('HEAD') ? others : [...others, 'HEAD' as const];
  app.route({
    method: refused,
    url: path,
    schema: { hide: true },
    onRequest: (_request, _reply, done) => {
      done(new RonError('method_not_allowed', `this path knows ${allow.join(', ')}`, { details: { allow } }));
    },
    handler: () => undefined,
  });
}
