/**
 * Assembles a listener in three steps: the core that connections and requests share, the path of a request, and the
 * listening sockets. `ingress.ts` calls them in this order.
 *
 * Contract: no function here starts a timer or opens a socket; `Ingress.listen` does.
 */
import { Admission } from '@ron/kernel';
import { warnAtMostEvery } from '@ron/telemetry';
import { AnswerSender } from './answer/answer-sender.ts';
import { Cors } from './answer/cors.ts';
import type { IngressLog } from './answer/answer-sender.ts';
import { Reasons } from './answer/reasons.ts';
import { Responder } from './answer/responder.ts';
import { connLimit, ConnectionLimiter } from './connection/connection-limiter.ts';
import { FairScheduler } from './connection/fair-scheduler.ts';
import { Sweeper } from './connection/sweeper.ts';
import { SocketFastPath } from './fast/socket-fast-path.ts';
import { compileProxies } from './guards/client-ip.ts';
import { HostGuard } from './guards/host-guard.ts';
import { pathGuard } from './guards/path-guard.ts';
import { RequestChecks } from './guards/request-checks.ts';
import { RequestGuards } from './guards/request-guards.ts';
import { SlotLimit } from './guards/slot-limit.ts';
import type { IngressInit } from './ingress-init.ts';
import { IngressMetrics } from './ingress-metrics.ts';
import {
  admissionGauges,
  admissionOf,
  encodedSlashPrefixes,
  exchangeHost,
  fastPathOf,
  ownCounters,
} from './ingress-parts.ts';
import type { IngressConfig } from './limits.ts';
import type { BindTarget } from './listen/bind.ts';
import { Listener } from './listen/listener.ts';
import type { TlsMaterial } from './listen/tls.ts';
import type { ExchangeHost } from './request/exchange.ts';
import { Pipeline } from './request/pipeline.ts';
import { healthRoutes } from './table/health.ts';
import { openapiDocument } from './table/openapi.ts';
import { Readiness } from './table/readiness.ts';
import { Router } from './table/router.ts';
import { routeName } from './table/routes.ts';
import type { Route } from './table/routes.ts';

/** Connections of the second listener: a few probes and scrapers. */
const HEALTH_ADMISSION = { inflight_max: 64, connections_max: 64, connections_per_ip_max: 32 };
const WARN_INTERVAL_MS = 5000;

/** The parts that connections and requests share. */
export interface Core {
  readonly config: IngressConfig;
  readonly is_tls: boolean;
  readonly log: IngressLog | undefined;
  readonly readiness: Readiness;
  readonly responder: Responder;
  readonly admission: Admission;
  readonly limiter: ConnectionLimiter;
  readonly metrics: IngressMetrics;
  readonly sweeper: Sweeper;
  readonly scheduler: FairScheduler;
  /** Aborted when a drain begins. */
  readonly draining: AbortController;
  /** Aborted when the listener is closed. */
  readonly closing: AbortController;
  /** Undefined: no origin may read answers. */
  readonly cors: Cors | undefined;
  /** All routes, the health routes first. */
  readonly routes: readonly Route[];
  readonly health_paths: ReadonlySet<string>;
}

export function createCore(init: IngressInit, config: IngressConfig, is_tls: boolean): Core {
  const readiness = init.readiness ?? new Readiness();
  const reasons = init.reasons === undefined ? undefined : new Reasons(init.reasons, init.metrics);
  const responder = new Responder({ tls: is_tls, reasons });
  const admission = admissionOf(config, init.charges_late);
  admissionGauges(init.metrics, admission);
  const proxies = compileProxies(config.trusted_proxies);
  const limiter = new ConnectionLimiter(admission, (ip) => proxies.check(ip));
  const cors = init.cors === undefined ? undefined : new Cors(init.cors);
  const { routes, health_paths } = allRoutes(init, readiness, responder, cors);
  const counters = init.counters ?? ownCounters(init.metrics);
  const metrics = new IngressMetrics(init.metrics, counters, routes.map(routeName), reasons);
  const sweeper = createSweeper(config, metrics);
  const scheduler = new FairScheduler();
  const { log } = init;
  return {
    config,
    is_tls,
    log,
    readiness,
    responder,
    admission,
    limiter,
    metrics,
    sweeper,
    scheduler,
    draining: new AbortController(),
    closing: new AbortController(),
    cors,
    routes,
    health_paths,
  };
}

function allRoutes(
  init: IngressInit,
  readiness: Readiness,
  responder: Responder,
  cors: Cors | undefined,
): Pick<Core, 'routes' | 'health_paths'> {
  const { service, version } = init;
  let openapi_json: string | undefined;
  const health = healthRoutes({
    service,
    version: () => ({ version, node: process.version, ...init.about?.() }),
    readiness,
    draining: () => responder.draining,
    health: init.health,
    metrics: init.metrics,
    openapi: () => (openapi_json ??= JSON.stringify(openapiDocument({ title: service, version }, routes))),
  });
  const routes: readonly Route[] = [...health, ...init.routes, ...(cors?.preflights(init.routes) ?? [])];
  return { routes, health_paths: new Set(health.map((row) => row.path)) };
}

function createSweeper(config: IngressConfig, metrics: IngressMetrics): Sweeper {
  const { rate_bytes_per_s_min } = config;
  return new Sweeper({
    period_ms: config.sweep_ms,
    read: { stall_ms: config.read_timeout_ms, rate_bytes_per_s_min },
    write: { stall_ms: config.write_timeout_ms, rate_bytes_per_s_min },
    drain_idle_ms: config.drain_idle_ms,
    header_timeout_ms: config.header_timeout_ms,
    onWriteCut: () => metrics.io_timeouts.at('write').inc(),
    onDiscardCut: () => metrics.io_timeouts.at('read').inc(),
  });
}

/** The path of a request behind its connection. */
export interface RequestPath {
  readonly host: ExchangeHost;
  readonly guards: RequestGuards;
  /** Undefined without a source of bytes in RAM. */
  readonly socket_fast_path: SocketFastPath | undefined;
}

export function createRequestPath(
  init: IngressInit,
  core: Core,
  target: BindTarget,
  metrics_target: BindTarget | undefined,
): RequestPath {
  const { admission, config, limiter, log, metrics, responder, routes, scheduler, sweeper } = core;
  const { access_log } = config;
  const onBusy = (): void => metrics.rejected.at('busy').inc();
  const event_slots = new SlotLimit(config.events_max, onBusy);
  const answers = new AnswerSender({ config, metrics, responder, log, event_slots });
  const pipeline = new Pipeline({
    config,
    metrics,
    answers,
    access: init.access,
    cors: core.cors,
    lanes: init.lanes ?? {},
    deadlines: init.deadlines,
    signal: core.closing.signal,
    onGranted: (ticket, grant) => limiter.onCapability(ticket, grant),
    onOpenRoute: (ticket) => {
      if (ticket.probation) throw connLimit();
    },
  });
  const parked = new SlotLimit(config.parked_max, onBusy);
  const host = exchangeHost({
    draining: core.draining.signal,
    parked,
    admission,
    metrics,
    answers,
    access_log,
    log,
  });
  const { checks, health_checks } = createChecks(core, target, metrics_target);
  const guards = new RequestGuards({
    config,
    admission,
    responder,
    metrics,
    sweeper,
    scheduler,
    host,
    checks,
    health_checks,
    answers,
  });
  const router = new Router(routes, pipeline, answers);
  const fast =
    init.fast === undefined
      ? undefined
      : fastPathOf({
          source: init.fast,
          admission,
          responder,
          sweeper,
          host,
          pipeline,
          answers,
          cors: core.cors,
          access_log,
        });
  guards.open(router, fast);
  const socket_fast_path =
    fast === undefined ? undefined : new SocketFastPath({ config, fast, admission, sweeper, scheduler, checks });
  return { host, guards, socket_fast_path };
}

function createChecks(
  core: Core,
  target: BindTarget,
  metrics_target: BindTarget | undefined,
): { checks: RequestChecks; health_checks: RequestChecks } {
  const { config, health_paths, is_tls, readiness, responder, routes } = core;
  const common = {
    header_count_max: config.header_count_max,
    path: pathGuard({ encoded_slash_prefixes: encodedSlashPrefixes(routes) }),
    health_paths,
    state: {
      get draining() {
        return responder.draining;
      },
      notReady: () => readiness.refusal(),
    },
  };
  const hosts = HostGuard.at(target, config.hosts);
  const health_hosts = HostGuard.at(metrics_target, config.hosts);
  return {
    checks: new RequestChecks({ ...common, scheme: is_tls ? 'https' : 'http', hosts, health_only: false }),
    health_checks: new RequestChecks({ ...common, scheme: 'http', hosts: health_hosts, health_only: true }),
  };
}

export interface Listeners {
  readonly main: Listener;
  /** Serves all routes at the Unix socket, for callers on this machine. */
  readonly local: Listener | undefined;
  /** Serves the health routes at `metrics_addr`. */
  readonly second: Listener | undefined;
}

export function createListeners(
  core: Core,
  { guards, socket_fast_path }: RequestPath,
  tls: TlsMaterial | undefined,
  has_second: boolean,
): Listeners {
  const { config, limiter, log, metrics, responder, scheduler, sweeper } = core;
  const warn = log === undefined ? undefined : warnAtMostEvery(log, WARN_INTERVAL_MS);
  const common = {
    config,
    limiter,
    sweeper,
    scheduler,
    responder,
    metrics,
    handleExpectation: guards.handleExpectation,
    onServerError: (error: Error): void => warn?.({ err: error }, 'listener error'),
  };
  const full = { ...common, handle: guards.handle, handleContinue: guards.handleContinue };
  const main = new Listener({ ...full, tls });
  // Limits of its own, so that users who hold all TCP connections do not lock out the services and the operator.
  const admission = { inflight_max: 1, connections_max: config.max_conns, connections_per_ip_max: config.max_conns };
  const own = { limiter: new ConnectionLimiter(new Admission(admission), () => false) };
  const local = config.socket === undefined ? undefined : new Listener({ ...full, ...own, tls: undefined });
  if (socket_fast_path !== undefined) for (const each of [main, local]) each?.useSocketFastPath(socket_fast_path);
  if (!has_second) return { main, local, second: undefined };
  const second = new Listener({
    ...common,
    // Limits of its own, so that probes get through when the main listener is full.
    limiter: new ConnectionLimiter(new Admission(HEALTH_ADMISSION), () => false),
    tls: undefined,
    handle: guards.handleHealth,
    handleContinue: guards.handleHealth,
  });
  return { main, local, second };
}
