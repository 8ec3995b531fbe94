/**
 * The entry of parsed requests (plain-front.ts may have answered earlier): the checks before routing, in order, and the
 * fast path.
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
import type { Admission, ClientAddress, EnterResult } from '@ron/kernel';
import { LOCAL_PEER } from '../connection/accept.ts';
import type { Answers } from '../answer/answers.ts';
import { clientIp } from './client-ip.ts';
import { Connection } from '../connection/connection.ts';
import { corrIdFrom, newCorrId } from './corr-id.ts';
import { refuseLater } from './delayed-refusal.ts';
import { Exchange } from '../request/exchange.ts';
import type { ExchangeHost } from '../request/exchange.ts';
import type { Arrival, FastPath } from '../fast/fast-path.ts';
import type { RequestGuards } from './guards.ts';
import { newHeaderView, scanHeaders } from './header-scan.ts';
import type { IngressMetrics } from '../ingress-metrics.ts';
import type { IngressConfig } from '../limits.ts';
import { waitsForTurn } from '../connection/node-internals.ts';
import type { Passes } from '../connection/passes.ts';
import { Place } from './place.ts';
import { refusalDelay_ms, ReserveEntry } from './reserve-entry.ts';
import type { Responder } from '../answer/responder.ts';
import { toRonError } from '../table/route-errors.ts';
import type { Router } from '../table/router.ts';
import type { Sweeper } from '../connection/sweeper.ts';
import { Turns } from '../connection/turns.ts';
import type { Begin } from '../connection/turns.ts';

export interface FrontInit {
  readonly config: IngressConfig;
  readonly admission: Admission;
  readonly responder: Responder;
  readonly metrics: IngressMetrics;
  readonly sweeper: Sweeper;
  readonly passes: Passes;
  readonly host: ExchangeHost;
  readonly guards: RequestGuards;
  /** The same for the health listener. */
  readonly health_guards: RequestGuards;
  readonly answers: Answers;
}

const INFLIGHT = new RonError('inflight_limit', 'as many requests as allowed are in flight');
const ADDRESS_LIMIT = new RonError('address_limit', 'this address has as many requests in flight as its share allows');
const NO_SUCH_EXPECTATION = new RonError('expectation_failed', 'the only expectation met here is 100-continue');

export class Front {
  readonly #init: FrontInit;
  readonly #view = newHeaderView();
  #router: Router | undefined;
  #fast: FastPath | undefined;
  readonly #turns: Turns;
  readonly #reserve = new ReserveEntry();
  readonly #arrival: Arrival = {
    connection: undefined as never,
    corr_id: '',
    ip: '',
    address: undefined,
    start_ms: 0,
    verdict: undefined,
  };

  constructor(init: FrontInit) {
    this.#init = init;
    this.#turns = new Turns({
      pipelined_max: init.config.pipelined_max,
      passes: init.passes,
      refuse: (req, res, error) => this.refuse(req, res, error, newCorrId(), sched.now_ms()),
    });
  }

  /** Where requests go that the front lets through. Called once, before the first request. */
  open(router: Router, fast: FastPath | undefined): void {
    this.#router = router;
    this.#fast = fast;
  }

  readonly handle = (req: IncomingMessage, res: ServerResponse): void => this.#arrive(req, res, this.#asWork);

  /** For a client that waits for leave to send its body. */
  readonly handleContinue = (req: IncomingMessage, res: ServerResponse): void =>
    this.#arrive(req, res, this.#asWorkThatWaits);

  readonly handleExpectation = (req: IncomingMessage, res: ServerResponse): void =>
    this.#arrive(req, res, this.#asExpectation);

  /** For the health listener. */
  readonly handleHealth = (req: IncomingMessage, res: ServerResponse): void => this.#arrive(req, res, this.#asHealth);

  // Made once, not for each request.
  readonly #asWork: Begin = this.#guarded((req, res, connection) => this.#enter(req, res, connection, false));
  readonly #asWorkThatWaits: Begin = this.#guarded((req, res, connection) => this.#enter(req, res, connection, true));
  readonly #asExpectation: Begin = this.#guarded((req, res) => this.#refuseExpectation(req, res));
  readonly #asHealth: Begin = this.#guarded((req, res, connection) => this.#enterHealth(req, res, connection));

  #refuseExpectation(req: IncomingMessage, res: ServerResponse): void {
    const { guards } = this.#init;
    scanHeaders(req.rawHeaders, this.#view);
    const refusal = guards.toOriginForm(req, this.#view) ?? guards.refusal(req, this.#view) ?? NO_SUCH_EXPECTATION;
    this.refuse(req, res, refusal, corrIdFrom(this.#view.corr_id), sched.now_ms());
  }

  #enterHealth(req: IncomingMessage, res: ServerResponse, connection: Connection): void {
    const start_ms = sched.now_ms();
    const { health_guards: guards } = this.#init;
    const view = this.#view;
    scanHeaders(req.rawHeaders, view);
    const corr_id = corrIdFrom(view.corr_id);
    const refusal = guards.toOriginForm(req, view) ?? guards.refusal(req, view);
    if (refusal !== undefined) return this.refuse(req, res, refusal, corr_id, start_ms);
    const place = new Place(this.#init.admission, undefined, false);
    this.#routed(req, res, connection, corr_id, start_ms, place, false);
  }

  /** Processes a request when the answers before it are out. */
  #arrive(req: IncomingMessage, res: ServerResponse, begin: Begin): void {
    const connection = Connection.of(req.socket);
    // The connection was refused or is closing: its last answer is on the way, and further requests are ignored.
    if (connection === undefined || connection.closing) return;
    this.#init.sweeper.headComplete(connection);
    this.#turns.take(req, res, connection, begin);
  }

  /** A defect in a cache or a checker costs one request, not the process. */
  #guarded(begin: Begin): Begin {
    return (req, res, connection) => {
      try {
        begin(req, res, connection);
      } catch (error) {
        const exchange = Exchange.of(req);
        if (exchange === undefined) this.refuse(req, res, toRonError(error), newCorrId(), sched.now_ms());
        else this.#init.answers.fail(exchange, error);
      }
    };
  }

  #enter(req: IncomingMessage, res: ServerResponse, connection: Connection, expects_continue: boolean): void {
    const { admission, guards } = this.#init;
    const fast = this.#fast;
    const start_ms = sched.now_ms();
    connection.active_ms = start_ms;
    const view = this.#view;
    scanHeaders(req.rawHeaders, view);
    const corr_id = corrIdFrom(view.corr_id);
    // An upgrade is never taken up. Node drops the rest of its packet, which may be half a request: this one is the last.
    if (view.upgrade) {
      res.shouldKeepAlive = false;
      connection.lastRequest();
    }
    const misformed = guards.toOriginForm(req, view);
    if (misformed !== undefined) return this.refuse(req, res, misformed, corr_id, start_ms);
    const url = req.url!;
    const hit = fast?.lookup(url);
    const refusal = guards.refusal(req, view, hit !== undefined);
    if (refusal !== undefined) return this.refuse(req, res, refusal, corr_id, start_ms);
    if (hit === undefined && guards.isHealth(url)) {
      const place = new Place(admission, undefined, false);
      return this.#routed(req, res, connection, corr_id, start_ms, place, expects_continue);
    }
    const no_work = guards.workRefusal();
    if (no_work !== undefined) return this.refuse(req, res, no_work, corr_id, start_ms);
    const ip = this.#ip(req, connection);
    const forwarded = this.#forwarded(ip, connection);
    const address = forwarded ?? connection.ticket.address;
    const entered = admission.tryEnter(address, connection.ticket.caller);
    const refused = entered === 'ok' ? undefined : this.#admissionError(entered, address);
    // Its place keeps the entry from here on.
    if (forwarded !== undefined) admission.release(forwarded);
    if (refused !== undefined) {
      const pending =
        forwarded === undefined ? this.#reserve.begin(connection.ticket, view, entered, refused) : undefined;
      if (pending === undefined) return this.#refuseLoad(req, res, connection, refused, corr_id, start_ms);
      const place = Place.pending(admission, pending);
      return this.#routed(req, res, connection, corr_id, start_ms, place, expects_continue);
    }
    const entry = hit ?? fast?.openNow(req);
    const arrival = this.#arrival;
    arrival.verdict = undefined;
    if (entry !== undefined) {
      arrival.connection = connection;
      arrival.corr_id = corr_id;
      arrival.start_ms = start_ms;
      arrival.ip = ip;
      arrival.address = address;
      if (fast!.serve(req, res, entry, view, arrival)) return;
    }
    const place = new Place(admission, address, true);
    this.#routed(req, res, connection, corr_id, start_ms, place, expects_continue, arrival.verdict);
  }

  #routed(
    req: IncomingMessage,
    res: ServerResponse,
    connection: Connection,
    corr_id: string,
    start_ms: number,
    place: Place,
    expects_continue: boolean,
    verdict?: Arrival['verdict'],
  ): void {
    const { host, metrics, sweeper } = this.#init;
    const ip = this.#ip(req, connection);
    const exchange = new Exchange(host, req, res, connection, corr_id, ip, start_ms, metrics.none, place);
    exchange.expects_continue = expects_continue;
    exchange.verdict = verdict;
    exchange.noteHeaders(this.#view);
    connection.request = req;
    sweeper.watch(connection);
    this.#router!.handle(exchange);
  }

  #ip(req: IncomingMessage, connection: Connection): string {
    const { trusted_proxies } = this.#init.config;
    const { ip } = connection.ticket;
    return trusted_proxies.length === 0 || ip === LOCAL_PEER ? ip : clientIp(ip, req.headers, trusted_proxies);
  }

  /** The entry of a client behind a trusted proxy, held; undefined for a client that is connected directly. */
  #forwarded(ip: string, { ticket }: Connection): ClientAddress | undefined {
    return ip === ticket.ip ? undefined : this.#init.admission.hold(ip);
  }

  #admissionError(code: Exclude<EnterResult, 'ok'>, address: ClientAddress | undefined): RonError {
    if (code === 'inflight_limit') return INFLIGHT;
    if (code === 'address_limit') return ADDRESS_LIMIT;
    const whose = code === 'rate_limited' ? 'requests' : 'requests of this address';
    const retry_after_ms = this.#init.admission.retryAfter_ms(address);
    return new RonError(code, `${whose} come faster than the limit`, { retry_after_ms });
  }

  #refuseLoad(
    req: IncomingMessage,
    res: ServerResponse,
    connection: Connection,
    error: RonError,
    corr_id: string,
    start_ms: number,
  ): void {
    const answer = (): void => this.refuse(req, res, error, corr_id, start_ms);
    const wait_ms = refusalDelay_ms(error);
    if (wait_ms === 0) return answer();
    refuseLater(req, connection, wait_ms, () => {
      // Each request behind it would be refused, too.
      if (connection.has_unread) connection.pipelines = true;
      answer();
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
    // After a malformed request the parser may disagree with the client about where the next one begins.
    const closes = connection?.pipelines === true || error.code === 'bad_request';
    responder.problem(res, error, corr_id, closes);
    if (closes && connection !== undefined) {
      // The requests behind this one are dropped; those before it, if it has no turn yet, are answered.
      if (!waitsForTurn(res)) connection.waiting.length = 0;
      connection.closeAfterFlights(true);
    }
    metrics.none.count(error.status, (sched.now_ms() - start_ms) / 1000);
    if (connection === undefined) return;
    // Until the answer has left and the body, if it is discarded, has come.
    connection.request = req;
    sweeper.watch(connection);
  }
}
