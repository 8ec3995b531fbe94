/**
 * The routes of every service that never wait behind work: health, readiness, metrics, version, OpenAPI.
 *
 * Contract: `/healthz` and `/metrics` answer until the process stops; `/readyz` is 503 as soon as a drain begins.
 */
import { RonError, sched } from '@ron/kernel';
import type { JsonSchema } from './schema.ts';
import type { Readiness } from './readiness.ts';
import { json, route, text } from './routes.ts';
import type { Route } from './routes.ts';

export interface HealthReport {
  readonly ok: boolean;
  /** The reason, and other details; never secrets. */
  readonly details?: Readonly<Record<string, unknown>>;
}

export interface HealthInit {
  readonly service: string;
  readonly version: () => Readonly<Record<string, string>>;
  readonly readiness: Readiness;
  readonly draining: () => boolean;
  /** Called for every probe. Default: healthy while the process answers. */
  readonly health: (() => HealthReport) | undefined;
  readonly metrics: { text(): Promise<string>; readonly contentType: string };
  readonly openapi: () => string;
}

const NO_STORE = { 'Cache-Control': 'no-store' };
const COMMON = { scope: null, lane: 'inline', body: 'none', access: 'health', tags: ['health'] } as const;
/** Plain JSON Schema: the library that builds schemas is half of the import time of a listener. */
const LOOSE: JsonSchema = { type: 'object', additionalProperties: true };
const READY_QUERY: JsonSchema = {
  type: 'object',
  properties: { lane: { type: 'string', pattern: '^[A-Za-z0-9_.-]{1,64}$' } },
  additionalProperties: false,
};

export function healthRoutes(init: HealthInit): Route[] {
  // Scrapes within one event loop iteration are coalesced: each costs milliseconds, and the route is open to all clients.
  let scraping: Promise<string> | undefined;
  const forget = async (): Promise<void> => {
    await sched.pause('ingress-scrape');
    scraping = undefined;
  };
  const scrape = (): Promise<string> => {
    scraping ??= init.metrics.text().finally(() => void forget());
    return scraping;
  };
  return [
    route({
      ...COMMON,
      method: 'GET',
      path: '/healthz',
      summary: 'Liveness: 503 once a critical task has failed permanently.',
      schema: { response: { 200: LOOSE } },
      handler: () => healthAnswer(init),
    }),
    route({
      ...COMMON,
      method: 'GET',
      path: '/readyz',
      summary: 'Readiness for traffic. `lane` makes the soft gates of that lane hard.',
      schema: {
        query: READY_QUERY,
        response: { 200: LOOSE },
      },
      handler: ({ query }) => readyAnswer(init, (query as { readonly lane?: string }).lane),
    }),
    route({
      ...COMMON,
      method: 'GET',
      path: '/metrics',
      summary: 'Metrics in the Prometheus text format.',
      handler: async () => text(200, init.metrics.contentType, await scrape(), NO_STORE),
    }),
    route({
      ...COMMON,
      method: 'GET',
      path: '/version',
      summary: 'Version and build.',
      schema: { response: { 200: LOOSE } },
      handler: () => json(200, { service: init.service, ...init.version() }, NO_STORE),
    }),
    route({
      ...COMMON,
      method: 'GET',
      path: '/openapi.json',
      summary: 'This document.',
      handler: () => text(200, 'application/json; charset=utf-8', init.openapi()),
    }),
  ];
}

function healthAnswer(init: HealthInit): ReturnType<typeof json> {
  const report = init.health?.() ?? { ok: true };
  if (report.ok)
    return json(200, { status: 'ok', service: init.service, draining: init.draining(), ...report.details }, NO_STORE);
  throw new RonError('unhealthy', 'a critical task has failed permanently', { details: report.details ?? {} });
}

function readyAnswer(init: HealthInit, lane: string | undefined): ReturnType<typeof json> {
  const report = init.readiness.report(lane);
  if (report.ready) return json(200, report, NO_STORE);
  const closed = report.gates.filter((gate) => !gate.open).map((gate) => `${gate.gate}: ${gate.reason}`);
  const code = init.draining() ? 'draining' : 'not_ready';
  throw new RonError(code, closed.join('; '), { details: { ...report } });
}
