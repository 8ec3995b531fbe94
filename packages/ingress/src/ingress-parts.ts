/**
 * The parts of a listener that depend only on its configuration and its route table; `assembly.ts` combines them.
 *
 * Contract: no function here starts a timer or opens a socket.
 */
import { Admission, ERRORS, RonError } from '@ron/kernel';
import type { Metrics } from '@ron/telemetry';
import type { AnswerSender, IngressLog } from './answer/answer-sender.ts';
import { bodyLate } from './body/body.ts';
import type { Exchange, ExchangeHost } from './request/exchange.ts';
import { FastPath } from './fast/fast-path.ts';
import type { FastPathInit } from './fast/fast-path.ts';
import type { IngressMetrics, SharedCounters } from './ingress-metrics.ts';
import { IO_OPS } from './ingress-metrics.ts';
import type { IngressConfig } from './limits.ts';
import type { Route } from './table/routes.ts';
import type { SlotLimit } from './guards/slot-limit.ts';

export function admissionOf(config: IngressConfig, charges_late = false): Admission {
  return new Admission({
    inflight_max: config.max_inflight,
    inflight_reserve: config.inflight_reserve ?? reserveOf(config.max_inflight),
    inflight_per_ip_max: config.inflight_per_ip_max ?? Math.ceil(config.max_inflight / 2),
    rps_limit_per_ip: config.rps_limit_per_ip,
    rps_burst_per_ip: config.rps_burst_per_ip,
    ...(config.rps_limit === undefined ? {} : { rps_limit: config.rps_limit, rps_burst: config.rps_burst }),
    charges_late,
    connections_max: config.max_conns,
    connections_per_ip_max: config.connection_limit_per_ip,
  });
}

/** Permits for internal callers: a sixteenth, at least four, but never more than a quarter of a small listener. */
function reserveOf(max_inflight: number): number {
  return Math.min(Math.max(4, Math.floor(max_inflight / 16)), Math.floor(max_inflight / 4));
}

export function admissionGauges(metrics: Metrics, admission: Admission): void {
  metrics.gaugeFrom('http_requests_inflight', 'Requests that are executing or streaming.', [], () => [
    { labels: {}, value: admission.inflight },
  ]);
  metrics.gaugeFrom('http_connections', 'Open connections.', [], () => [{ labels: {}, value: admission.connections }]);
}

export function ownCounters(metrics: Metrics): SharedCounters {
  return {
    rejected: metrics.counter('rejected_total', 'Requests refused, by problem code.', { reason: Object.keys(ERRORS) }),
    io_timeouts: metrics.counter('io_timeouts_total', 'Waits that exceeded their deadline.', { op: [...IO_OPS] }),
  };
}

/** The prefixes under which a parameter may contain an encoded slash: the path before the first parameter. */
export function encodedSlashPrefixes(routes: readonly Route[]): string[] {
  return routes.filter((row) => row.encoded_slash === true).map((row) => row.path.slice(0, row.path.indexOf('/:') + 1));
}

export function fastPathOf(init: FastPathInit): FastPath {
  const { route } = init.source;
  const prepared = init.pipeline.preparedRoute(route);
  if (prepared === undefined) throw new RonError('internal', `the fast path names ${route}, which is not a route`);
  return new FastPath(prepared.row.cors === true ? init : { ...init, cors: undefined }, prepared);
}

export interface ExchangeHostInit {
  readonly draining: AbortSignal;
  readonly parked: SlotLimit;
  readonly admission: Admission;
  readonly metrics: IngressMetrics;
  readonly answers: AnswerSender;
  readonly access_log: boolean;
  readonly log: IngressLog | undefined;
}

export function exchangeHost(init: ExchangeHostInit): ExchangeHost {
  const { draining, parked, admission, metrics, answers, access_log, log } = init;
  return {
    orphaned: 0,
    parked,
    draining,
    onExpire: (op) => metrics.io_timeouts.at(op).inc(),
    chargeRate: () => {
      if (admission.tryCharge()) return;
      const retry_after_ms = admission.retryAfter_ms();
      throw new RonError('rate_limited', 'requests come faster than the limit', { retry_after_ms });
    },
    fail: (exchange, error) => answers.fail(exchange, error),
    readStalled: (exchange) => {
      metrics.io_timeouts.at('read').inc();
      const error = bodyLate();
      if (!exchange.failBody(error)) answers.fail(exchange, error);
    },
    finished: (exchange: Exchange, status: number, seconds: number) => {
      exchange.metrics.count(status, seconds);
      if (access_log) {
        const { method, url } = exchange.req;
        log?.info({ corr_id: exchange.corr_id, method, url, status, seconds, ip: exchange.ip }, 'request');
      }
    },
  };
}
