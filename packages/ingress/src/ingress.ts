/**
 * One hardened HTTP listener for a service: give it routes, get back something that listens, drains and closes.
 *
 *   socket -> connection caps -> plain front: an ordinary GET for bytes at hand? one write, no parser   (not over TLS)
 *          -> Node's parser -> one request per connection at a time -> guards: target, headers, Host, path
 *          -> drain? -> ready? -> rate and in-flight, in total and per address
 *          -> fast path: GET or HEAD of bytes at hand, answered without the router
 *          -> router -> capability (chain, header caveats) -> body cap -> decompression guard -> queue
 *          -> handler (body caveats while reading) -> answer
 */
import type { Server as TlsServer } from 'node:https';
import { isIPv6 } from 'node:net';
import { Admission, RonError } from '@ron/kernel';
import { warnAtMostEvery } from '@ron/telemetry';
import type { Metrics } from '@ron/telemetry';
import { connLimit, Gatekeeper } from './connection/accept.ts';
import type { AccessCheck } from './guards/access.ts';
import { Answers } from './answer/answers.ts';
import type { IngressLog } from './answer/answers.ts';
import { guardOpenReads, parseBind } from './listen/bind.ts';
import { compileProxies } from './guards/client-ip.ts';
import { Drain } from './connection/drain.ts';
import { Passes } from './connection/passes.ts';
import { PlainFront } from './fast/plain-front.ts';
import type { FastSource } from './fast/fast-path.ts';
import { Front } from './guards/front.ts';
import { RequestGuards } from './guards/guards.ts';
import { HostGuard } from './guards/host-guard.ts';
import { healthRoutes } from './table/health.ts';
import type { HealthReport } from './table/health.ts';
import { IngressMetrics } from './ingress-metrics.ts';
import type { SharedCounters } from './ingress-metrics.ts';
import {
  admissionGauges,
  admissionOf,
  encodedSlashPrefixes,
  exchangeHost,
  fastPathOf,
  ownCounters,
} from './ingress-parts.ts';
import { ingressConfig } from './limits.ts';
import type { IngressConfig } from './limits.ts';
import { Listener } from './listen/listener.ts';
import { openapiDocument } from './table/openapi.ts';
import { pathGuard } from './guards/path-guard.ts';
import { Pipeline } from './request/pipeline.ts';
import type { DeclaredDeadlines, LaneQueue } from './table/prepared-route.ts';
import { Readiness } from './table/readiness.ts';
import { Reasons } from './table/reasons.ts';
import type { ReasonsInit } from './table/reasons.ts';
import { Responder } from './answer/responder.ts';
import { Router } from './table/router.ts';
import { routeName } from './table/routes.ts';
import type { Route } from './table/routes.ts';
import { SlotLimit } from './guards/slot-limit.ts';
import type { StartingListener } from './listen/starting-listener.ts';
import { Sweeper } from './connection/sweeper.ts';
import { readTls, reloadTls } from './listen/tls.ts';

export interface IngressInit {
  readonly service: string;
  /** Shown at `/version` and in the OpenAPI document. */
  readonly version: string;
  /** Further members of `/version`, read for each request. Default none. */
  readonly about?: () => Readonly<Record<string, string>>;
  readonly metrics: Metrics;
  /** Counters that the service already has. Default: made here. */
  readonly counters?: SharedCounters;
  readonly config?: Partial<IngressConfig>;
  /** Reason codes that problems carry besides their code. Default none. */
  readonly reasons?: ReasonsInit;
  readonly routes: readonly Route[];
  /** Work queues by lane. Every lane that a route names must be here. */
  readonly lanes?: Readonly<Record<string, LaneQueue>>;
  /** The deadlines that routes name. A `ServiceRuntime` fits. */
  readonly deadlines?: DeclaredDeadlines;
  /** Bytes in RAM that are answered before routing. */
  readonly fast?: FastSource;
  /** Checks capabilities. May be left out only when every route is open. */
  readonly access?: AccessCheck;
  /** The gates of `/readyz`. The listener adds `draining`. */
  readonly readiness?: Readiness;
  /** Called by `/healthz`. */
  readonly health?: () => HealthReport;
  readonly log?: IngressLog;
}

export interface Ingress extends AsyncDisposable {
  readonly readiness: Readiness;
  readonly admission: Admission;
  readonly draining: boolean;
  /** Where it listens. Throws before `listen`. */
  readonly url: string;
  readonly metrics_url: string | undefined;
  /** `from`: answered probes at the same addresses until now; its listening sockets are taken over. */
  listen(from?: StartingListener): Promise<string>;
  /** From now on work is refused; see `Drain`. */
  beginDrain(): void;
  /** Waits until every request in flight is answered; false when the signal aborted first. Cuts nothing. */
  drained(signal: AbortSignal): Promise<boolean>;
  /** Drains, then stops. Requests that still run when `signal` aborts are cut and counted. */
  close(signal: AbortSignal): Promise<{ aborted: number }>;
  /** Reads the certificate files again. Rejects, and keeps the old pair, when they cannot be used. */
  reloadTls(): Promise<void>;
}

/** Connections of the second listener: a few probes and scrapers. */
const HEALTH_ADMISSION = { inflight_max: 64, connections_max: 64, connections_per_ip_max: 32 };
const WARN_INTERVAL_MS = 5000;

export async function createIngress(init: IngressInit): Promise<Ingress> {
  const config = ingressConfig(init.config);
  const target = parseBind(config.bind);
  const metrics_target = config.metrics_addr === undefined ? undefined : parseBind(config.metrics_addr);
  const open_reads = init.routes.filter((row) => row.scope === null && row.access !== 'health').map(routeName);
  guardOpenReads(target, open_reads, config.open_beyond_loopback);
  const tls = config.tls === undefined ? undefined : await readTls(config.tls);

  const readiness = init.readiness ?? new Readiness();
  const drain_gate = readiness.gate('draining', { kind: 'hard' });
  const reasons = init.reasons === undefined ? undefined : new Reasons(init.reasons, init.metrics);
  const responder = new Responder({ tls: tls !== undefined, reasons });
  const admission = admissionOf(config);
  admissionGauges(init.metrics, admission);
  let openapi_json: string | undefined;
  const health = healthRoutes({
    service: init.service,
    version: () => ({ version: init.version, node: process.version, ...init.about?.() }),
    readiness,
    draining: () => responder.draining,
    health: init.health,
    metrics: init.metrics,
    openapi: () =>
      (openapi_json ??= JSON.stringify(openapiDocument({ title: init.service, version: init.version }, routes))),
  });
  const routes: readonly Route[] = [...health, ...init.routes];
  const metrics = new IngressMetrics(
    init.metrics,
    init.counters ?? ownCounters(init.metrics),
    routes.map(routeName),
    reasons,
  );
  const proxies = compileProxies(config.trusted_proxies);
  const gatekeeper = new Gatekeeper(admission, (ip) => proxies.check(ip, isIPv6(ip) ? 'ipv6' : 'ipv4'));
  const sweeper = new Sweeper({
    period_ms: config.sweep_ms,
    read: { stall_ms: config.read_timeout_ms, rate_bytes_per_s_min: config.rate_bytes_per_s_min },
    write: { stall_ms: config.write_timeout_ms, rate_bytes_per_s_min: config.rate_bytes_per_s_min },
    drain_idle_ms: config.drain_idle_ms,
    header_timeout_ms: config.header_timeout_ms,
    onWriteCut: () => metrics.io_timeouts.at('write').inc(),
    onDiscardCut: () => metrics.io_timeouts.at('read').inc(),
  });
  const closing = new AbortController();
  const onBusy = (): void => metrics.rejected.at('busy').inc();
  const answers = new Answers({
    config,
    metrics,
    responder,
    log: init.log,
    event_slots: new SlotLimit(config.events_max, onBusy),
  });
  const pipeline = new Pipeline({
    config,
    metrics,
    answers,
    access: init.access,
    lanes: init.lanes ?? {},
    deadlines: init.deadlines,
    signal: closing.signal,
    onGranted: (ticket, grant) => gatekeeper.vouch(ticket, grant),
    onOpenRoute: (ticket) => {
      if (ticket.probation) throw connLimit();
    },
  });
  const draining = new AbortController();
  const host = exchangeHost({
    draining: draining.signal,
    parked: new SlotLimit(config.parked_max, onBusy),
    metrics,
    answers,
    access_log: config.access_log,
    log: init.log,
  });
  const guards_init = {
    header_count_max: config.header_count_max,
    path: pathGuard({ encoded_slash_prefixes: encodedSlashPrefixes(routes) }),
    health_paths: new Set(health.map((row) => row.path)),
    state: {
      get draining() {
        return responder.draining;
      },
      notReady: () => readiness.refusal(),
    },
  };
  const guards = new RequestGuards({
    ...guards_init,
    scheme: tls === undefined ? 'http' : 'https',
    hosts: HostGuard.at(target, config.hosts),
    health_only: false,
  });
  const health_guards = new RequestGuards({
    ...guards_init,
    scheme: 'http',
    hosts: HostGuard.at(metrics_target, config.hosts),
    health_only: true,
  });
  const passes = new Passes();
  const front = new Front({
    config,
    admission,
    responder,
    metrics,
    sweeper,
    passes,
    host,
    guards,
    health_guards,
    answers,
  });
  const warn = init.log === undefined ? undefined : warnAtMostEvery(init.log, WARN_INTERVAL_MS);
  const onServerError = (error: Error): void => warn?.({ err: error }, 'the listener met an error');
  const common = {
    config,
    gatekeeper,
    sweeper,
    passes,
    responder,
    metrics,
    handleExpectation: front.handleExpectation,
    onServerError,
  };
  const main = new Listener({ ...common, tls, handle: front.handle, handleContinue: front.handleContinue });
  const second =
    metrics_target === undefined
      ? undefined
      : new Listener({
          ...common,
          // Places of its own, so that probes get through when the main listener is full.
          gatekeeper: new Gatekeeper(new Admission(HEALTH_ADMISSION), () => false),
          tls: undefined,
          handle: front.handleHealth,
          handleContinue: front.handleHealth,
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
          access_log: config.access_log,
        });
  front.open(router, fast);
  if (fast !== undefined) main.answerPlainly(new PlainFront({ config, fast, admission, sweeper, passes, guards }));
  const drain = new Drain({
    listeners: second === undefined ? [main] : [main, second],
    sweeper,
    responder,
    gate: drain_gate,
    draining,
    orphaned: () => host.orphaned,
  });

  const close = async (signal: AbortSignal): Promise<{ aborted: number }> => {
    const result = await drain.close(signal);
    closing.abort(new RonError('closed', 'the listener is closed'));
    return result;
  };
  return {
    readiness,
    admission,
    get draining() {
      return drain.begun;
    },
    get url() {
      return main.url;
    },
    get metrics_url() {
      return second?.url;
    },
    async listen(from) {
      if (second !== undefined && metrics_target !== undefined) {
        await second.listen(metrics_target, from?.release(config.metrics_addr!));
      }
      return main.listen(target, from?.release(config.bind));
    },
    beginDrain: () => drain.begin(),
    drained: (signal) => drain.drained(signal),
    close,
    async reloadTls() {
      if (config.tls !== undefined) await reloadTls(main.server as unknown as TlsServer, config.tls);
    },
    async [Symbol.asyncDispose]() {
      await close(AbortSignal.abort());
    },
  };
}
