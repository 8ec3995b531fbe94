/**
 * The first thing a request meets that was parsed (plain-front.ts may have answered it before): the checks before routing,
 * in their order, and the fast path.
 *
 *   guards (request, then drain and readiness) -> rate and in-flight -> fast path, or the router
 *
 * Promise: nothing is queued or read for a request that these refuse; the one thing looked up before is whether RAM has
 * the answer, because such a target needs no path check. Health routes pass the header checks only: they answer in a
 * drain and under full load.
 * Bound: allocates one exchange per routed request, nothing for a fast answer or beyond the answer for a refusal.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { RonError, sched } from '@ron/kernel';
import type { Admission } from '@ron/kernel';
import { clientIp } from './client-ip.ts';
import { Connection } from './connection.ts';
import { corrIdFrom, newCorrId } from './corr-id.ts';
import { Exchange } from './exchange.ts';
import type { ExchangeHost } from './exchange.ts';
import type { Arrival, FastPath } from './fast-path.ts';
import type { RequestGuards } from './guards.ts';
import { newHeaderView, scanHeaders } from './header-scan.ts';
import type { IngressMetrics } from './ingress-metrics.ts';
import type { IngressConfig } from './limits.ts';
import type { Responder } from './responder.ts';
import { toRonError } from './route-errors.ts';
import type { Router } from './router.ts';
import type { Sweeper } from './sweeper.ts';

/** One connection may not take all places by pipelining. */
const PIPELINED_MAX = 32;

export interface FrontInit {
  readonly config: IngressConfig;
  readonly admission: Admission;
  readonly responder: Responder;
  readonly metrics: IngressMetrics;
  readonly sweeper: Sweeper;
  readonly host: ExchangeHost;
  readonly guards: RequestGuards;
  /** The same for the health listener. */
  readonly health_guards: RequestGuards;
  readonly fail: (exchange: Exchange, error: unknown) => void;
}

const INFLIGHT = new RonError('inflight_limit', 'as many requests as allowed are in flight');
const PIPELINED = new RonError('inflight_limit', `more than ${PIPELINED_MAX} requests are pipelined on one connection`);
const NO_SUCH_EXPECTATION = new RonError('expectation_failed', 'the only expectation met here is 100-continue');

export class Front {
  readonly #init: FrontInit;
  readonly #view = newHeaderView();
  #router: Router | undefined;
  #fast: FastPath | undefined;
  readonly #arrival: Arrival = {
    connection: undefined as never,
    corr_id: '',
    ip: '',
    start_ms: 0,
    verdict: undefined,
  };

  constructor(init: FrontInit) {
    this.#init = init;
  }

  /** Where requests go that the front lets through. Called once, before the first request. */
  open(router: Router, fast: FastPath | undefined): void {
    this.#router = router;
    this.#fast = fast;
  }

  readonly handle = (req: IncomingMessage, res: ServerResponse): void => {
    this.#guarded(req, res, false);
  };

  /** For a client that waits for leave to send its body. */
  readonly handleContinue = (req: IncomingMessage, res: ServerResponse): void => {
    this.#guarded(req, res, true);
  };

  readonly handleExpectation = (req: IncomingMessage, res: ServerResponse): void => {
    const { guards } = this.#init;
    scanHeaders(req.rawHeaders, this.#view);
    const refusal = guards.toOriginForm(req, this.#view) ?? guards.refusal(req, this.#view) ?? NO_SUCH_EXPECTATION;
    this.refuse(req, res, refusal, corrIdFrom(this.#view.corr_id), sched.now_ms());
  };

  /** For the health listener. */
  readonly handleHealth = (req: IncomingMessage, res: ServerResponse): void => {
    const start_ms = sched.now_ms();
    const connection = Connection.of(req.socket);
    if (connection === undefined || connection.closing) return;
    const { health_guards: guards } = this.#init;
    const view = this.#view;
    scanHeaders(req.rawHeaders, view);
    const corr_id = corrIdFrom(view.corr_id);
    if (connection.flights.length >= PIPELINED_MAX) return this.refuse(req, res, PIPELINED, corr_id, start_ms);
    const refusal = guards.toOriginForm(req, view) ?? guards.refusal(req, view);
    if (refusal !== undefined) return this.refuse(req, res, refusal, corr_id, start_ms);
    this.#routed(req, res, connection, corr_id, start_ms, false, false);
  };

  /** A defect in a cache or a checker costs one request, not the process. */
  #guarded(req: IncomingMessage, res: ServerResponse, expects_continue: boolean): void {
    try {
      this.#enter(req, res, expects_continue);
    } catch (error) {
      const exchange = Exchange.of(req);
      if (exchange === undefined) this.refuse(req, res, toRonError(error), newCorrId(), sched.now_ms());
      else this.#init.fail(exchange, error);
    }
  }

  #enter(req: IncomingMessage, res: ServerResponse, expects_continue: boolean): void {
    const { admission, guards } = this.#init;
    const fast = this.#fast;
    const start_ms = sched.now_ms();
    const connection = Connection.of(req.socket);
    // Refused when it was accepted, or told to close: its answer is on the way, and no further request on it counts.
    if (connection === undefined || connection.closing) return;
    connection.active_ms = start_ms;
    const view = this.#view;
    scanHeaders(req.rawHeaders, view);
    const corr_id = corrIdFrom(view.corr_id);
    // An upgrade is never taken up. Node drops the rest of its packet, which may be half a request: this one is the last.
    if (view.upgrade) {
      res.shouldKeepAlive = false;
      connection.lastRequest();
    }
    // Health routes too: one packet of pipelined scrapes would keep the event loop busy for seconds.
    if (connection.flights.length >= PIPELINED_MAX) return this.refuse(req, res, PIPELINED, corr_id, start_ms);
    const misformed = guards.toOriginForm(req, view);
    if (misformed !== undefined) return this.refuse(req, res, misformed, corr_id, start_ms);
    const url = req.url!;
    const hit = fast?.lookup(url);
    const refusal = guards.refusal(req, view, hit !== undefined);
    if (refusal !== undefined) return this.refuse(req, res, refusal, corr_id, start_ms);
    if (hit === undefined && guards.isHealth(url))
      return this.#routed(req, res, connection, corr_id, start_ms, false, expects_continue);
    const no_work = guards.workRefusal();
    if (no_work !== undefined) return this.refuse(req, res, no_work, corr_id, start_ms);
    const entered = admission.tryEnter();
    if (entered !== 'ok')
      return this.refuse(req, res, entered === 'rate_limited' ? this.#rateLimited() : INFLIGHT, corr_id, start_ms);
    const entry = hit ?? fast?.openNow(req);
    const arrival = this.#arrival;
    arrival.verdict = undefined;
    if (entry !== undefined) {
      arrival.connection = connection;
      arrival.corr_id = corr_id;
      arrival.start_ms = start_ms;
      arrival.ip = this.#ip(req, connection);
      if (fast!.serve(req, res, entry, view, arrival)) return;
    }
    this.#routed(req, res, connection, corr_id, start_ms, true, expects_continue, arrival.verdict);
  }

  #routed(
    req: IncomingMessage,
    res: ServerResponse,
    connection: Connection,
    corr_id: string,
    start_ms: number,
    holds_place: boolean,
    expects_continue: boolean,
    verdict?: Arrival['verdict'],
  ): void {
    const { host, metrics, sweeper } = this.#init;
    const ip = this.#ip(req, connection);
    const exchange = new Exchange(host, req, res, connection, corr_id, ip, start_ms, metrics.none, holds_place);
    exchange.expects_continue = expects_continue;
    exchange.verdict = verdict;
    sweeper.watch(connection);
    this.#router!.handle(exchange);
  }

  #ip(req: IncomingMessage, connection: Connection): string {
    const { trusted_proxies } = this.#init.config;
    return trusted_proxies.length === 0
      ? connection.ticket.ip
      : clientIp(connection.ticket.ip, req.headers, trusted_proxies);
  }

  #rateLimited(): RonError {
    return new RonError('rate_limited', 'requests come faster than the limit', {
      retry_after_ms: this.#init.admission.retryAfter_ms(),
    });
  }

  /**
   * Answers without an exchange. The connection closes while draining, when a body is left unread, when the request
   * contradicts itself, and when it was pipelined behind others: a packet full of requests must not be answered with
   * thousands of refusals.
   */
  refuse(req: IncomingMessage, res: ServerResponse, error: RonError, corr_id: string, start_ms: number): void {
    const { metrics, responder, sweeper } = this.#init;
    metrics.countRefusal(error);
    const connection = Connection.of(req.socket);
    // A request that contradicts itself may have meant something else by what follows it.
    const closes = res.socket === null || error.code === 'bad_request';
    responder.problem(res, error, corr_id, closes);
    if (closes) connection?.closeAfterFlights();
    metrics.none.count(error.status, (sched.now_ms() - start_ms) / 1000);
    if (connection !== undefined && req.socket.writableLength > 0) sweeper.watch(connection);
  }
}
