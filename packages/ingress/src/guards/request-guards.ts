/**
 * The entry of parsed requests: the checks before routing, in order, and the fast path. (`SocketFastPath` may have
 * answered earlier.)
 *
 *   checks (request, then drain and readiness) -> rate and in-flight -> fast path, or the router
 *
 * Contract: nothing is queued or read for a refused request. The only earlier step is the lookup in RAM, because a
 * target found there needs no path check. Health routes are subject to the request checks only: they answer during a
 * drain and under full load.
 * Bound: allocates one exchange per routed request, nothing for a fast answer, and only the answer for a refusal.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { RonError, sched } from '@ron/kernel';
import type { Admission, ClientAddress, EnterResult } from '@ron/kernel';
import { LOCAL_PEER } from '../connection/connection-limiter.ts';
import type { AnswerSender } from '../answer/answer-sender.ts';
import { clientIp } from './client-ip.ts';
import { Connection } from '../connection/connection.ts';
import { corrIdFrom, newCorrId } from './corr-id.ts';
import { refuseLater } from './delayed-refusal.ts';
import { Exchange } from '../request/exchange.ts';
import type { ExchangeHost } from '../request/exchange.ts';
import type { Arrival, FastPath } from '../fast/fast-path.ts';
import type { RequestChecks } from './request-checks.ts';
import { newHeaderView, scanHeaders } from './header-scan.ts';
import type { IngressMetrics } from '../ingress-metrics.ts';
import type { IngressConfig } from '../limits.ts';
import { waitsForSocket } from '../connection/node-internals.ts';
import type { FairScheduler } from '../connection/fair-scheduler.ts';
import { InflightPermit } from './inflight-permit.ts';
import { refusalDelay_ms, ReserveEntry } from './reserve-entry.ts';
import type { Responder } from '../answer/responder.ts';
import { toRonError } from '../table/route-errors.ts';
import type { Router } from '../table/router.ts';
import type { Sweeper } from '../connection/sweeper.ts';
import { RequestSequencer } from '../connection/request-sequencer.ts';
import type { Begin } from '../connection/request-sequencer.ts';

export interface RequestGuardsInit {
  readonly config: IngressConfig;
  readonly admission: Admission;
  readonly responder: Responder;
  readonly metrics: IngressMetrics;
  readonly sweeper: Sweeper;
  readonly scheduler: FairScheduler;
  readonly host: ExchangeHost;
  readonly checks: RequestChecks;
  /** The same for the health listener. */
  readonly health_checks: RequestChecks;
  readonly answers: AnswerSender;
}

const INFLIGHT = new RonError('inflight_limit', 'the limit on requests in flight is reached');
const ADDRESS_LIMIT = new RonError('address_limit', 'this address has reached its share of requests in flight');
const NO_SUCH_EXPECTATION = new RonError('expectation_failed', 'the only supported expectation is 100-continue');

export class RequestGuards {
  readonly #init: RequestGuardsInit;
  readonly #view = newHeaderView();
  #router: Router | undefined;
  #fast: FastPath | undefined;
  readonly #sequencer: RequestSequencer;
  readonly #reserve = new ReserveEntry();
  readonly #arrival: Arrival = {
    connection: undefined as never,
    corr_id: '',
    ip: '',
    address: undefined,
    start_ms: 0,
    verdict: undefined,
  };

  constructor(init: RequestGuardsInit) {
    this.#init = init;
    this.#sequencer = new RequestSequencer({
      pipelined_max: init.config.pipelined_max,
      scheduler: init.scheduler,
      refuse: (req, res, error) => this.refuse(req, res, error, newCorrId(), sched.now_ms()),
    });
  }

  /** Sets the targets of requests that pass. Called once, before the first request. */
  open(router: Router, fast: FastPath | undefined): void {
    this.#router = router;
    this.#fast = fast;
  }

  readonly handle = (req: IncomingMessage, res: ServerResponse): void => this.#arrive(req, res, this.#asWork);

  /** For a client that waits for `100 Continue`. */
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
    const { checks } = this.#init;
    scanHeaders(req.rawHeaders, this.#view);
    const refusal = checks.toOriginForm(req, this.#view) ?? checks.refusal(req, this.#view) ?? NO_SUCH_EXPECTATION;
    this.refuse(req, res, refusal, corrIdFrom(this.#view.corr_id), sched.now_ms());
  }

  #enterHealth(req: IncomingMessage, res: ServerResponse, connection: Connection): void {
    const start_ms = sched.now_ms();
    const { health_checks: checks } = this.#init;
    const view = this.#view;
    scanHeaders(req.rawHeaders, view);
    const corr_id = corrIdFrom(view.corr_id);
    const refusal = checks.toOriginForm(req, view) ?? checks.refusal(req, view);
    if (refusal !== undefined) return this.refuse(req, res, refusal, corr_id, start_ms);
    const permit = new InflightPermit(this.#init.admission, undefined, false);
    this.#routed(req, res, connection, corr_id, start_ms, permit, false);
  }

  /** Processes a request once all earlier answers are sent. */
  #arrive(req: IncomingMessage, res: ServerResponse, begin: Begin): void {
    const connection = Connection.of(req.socket);
    // The connection was refused or is closing: its last answer is being sent, and further requests are ignored.
    if (connection === undefined || connection.closing) return;
    this.#init.sweeper.headComplete(connection);
    this.#sequencer.schedule(req, res, connection, begin);
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
    const { admission, checks } = this.#init;
    const fast = this.#fast;
    const start_ms = sched.now_ms();
    connection.active_ms = start_ms;
    const view = this.#view;
    scanHeaders(req.rawHeaders, view);
    const corr_id = corrIdFrom(view.corr_id);
    // An upgrade is never accepted. Node drops the rest of the packet, which may be half a request, so this request is the last.
    if (view.upgrade) {
      res.shouldKeepAlive = false;
      connection.lastRequest();
    }
    const misformed = checks.toOriginForm(req, view);
    if (misformed !== undefined) return this.refuse(req, res, misformed, corr_id, start_ms);
    const url = req.url!;
    const hit = fast?.lookup(url);
    const refusal = checks.refusal(req, view, hit !== undefined);
    if (refusal !== undefined) return this.refuse(req, res, refusal, corr_id, start_ms);
    // [index I-13] Before drain, rate and in-flight limits.
    if (hit === undefined && checks.isHealth(url)) {
      const permit = new InflightPermit(admission, undefined, false);
      return this.#routed(req, res, connection, corr_id, start_ms, permit, expects_continue);
    }
    const no_work = checks.workRefusal();
    if (no_work !== undefined) return this.refuse(req, res, no_work, corr_id, start_ms);
    const ip = this.#ip(req, connection);
    const forwarded = this.#forwarded(ip, connection);
    const address = forwarded ?? connection.ticket.address;
    const entered = admission.tryEnter(address, connection.ticket.caller);
    const refused = entered === 'ok' ? undefined : this.#admissionError(entered, address);
    // Its permit holds the entry from here on.
    if (forwarded !== undefined) admission.release(forwarded);
    if (refused !== undefined) {
      const pending =
        forwarded === undefined ? this.#reserve.begin(connection.ticket, view, entered, refused) : undefined;
      if (pending === undefined) return this.#refuseLoad(req, res, connection, refused, corr_id, start_ms);
      const permit = InflightPermit.pending(admission, pending);
      return this.#routed(req, res, connection, corr_id, start_ms, permit, expects_continue);
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
    const permit = new InflightPermit(admission, address, true);
    this.#routed(req, res, connection, corr_id, start_ms, permit, expects_continue, arrival.verdict);
  }

  #routed(
    req: IncomingMessage,
    res: ServerResponse,
    connection: Connection,
    corr_id: string,
    start_ms: number,
    permit: InflightPermit,
    expects_continue: boolean,
    verdict?: Arrival['verdict'],
  ): void {
    const { host, metrics, sweeper } = this.#init;
    const ip = this.#ip(req, connection);
    const exchange = new Exchange(host, req, res, connection, corr_id, ip, start_ms, metrics.none, permit);
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

  /** The entry of a client behind a trusted proxy, held for the caller; undefined for a directly connected client. */
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
      // Each request behind it would be refused too.
      if (connection.has_unread) connection.pipelines = true;
      answer();
    });
  }

  /**
   * Answers without an exchange. The connection closes while draining, if a body is left unread, if the request is
   * malformed, and if it was pipelined behind others: a packet full of requests must not be answered with thousands of
   * refusals.
   */
  refuse(req: IncomingMessage, res: ServerResponse, error: RonError, corr_id: string, start_ms: number): void {
    const { metrics, responder, sweeper } = this.#init;
    metrics.countRefusal(error);
    const connection = Connection.of(req.socket);
    // After a malformed request the parser may disagree with the client about where the next one begins.
    const closes = connection?.pipelines === true || error.code === 'bad_request';
    responder.problem(res, error, corr_id, closes);
    if (closes && connection !== undefined) {
      // The requests behind this one are dropped; those before it, if it still waits for the socket, are answered.
      if (!waitsForSocket(res)) connection.waiting.length = 0;
      connection.closeAfterInflight(true);
    }
    metrics.none.count(error.status, (sched.now_ms() - start_ms) / 1000);
    if (connection === undefined) return;
    // Watched until the answer is sent and the body, if it is discarded, has arrived.
    connection.request = req;
    sweeper.watch(connection);
  }
}
