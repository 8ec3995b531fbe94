/**
 * Processes a routed request: capability, parameters, body, queue, handler, answer, in this order.
 *
 * Promise: the capability is checked before a byte of the body is read and before any queue; the body is capped, decoded
 * through the guard and checked by the capability while it is read; a handler of a queued lane runs in a worker of that
 * queue, under the deadline of the request. Whatever fails becomes one problem answer.
 * Bound: nothing is held here but the exchange. Cancellation: as the exchange's.
 */
import type { IncomingMessage } from 'node:http';
import { RonError, sched } from '@ron/kernel';
import type { Log } from '@ron/kernel';
import { insist, refusalError } from './access.ts';
import type { AccessCheck, AccessFacts, Grant, Refusal } from './access.ts';
import { Body, checkDeclaredLength, isPlain, PlainBody } from './body.ts';
import { requestBudget_ms } from './budget.ts';
import { serveBytes } from './bytes.ts';
import type { ByteOutcome, ByteSource } from './bytes.ts';
import type { Connection, Ticket } from './connection.ts';
import { sendEvents } from './event-stream.ts';
import type { Exchange } from './exchange.ts';
import { headerText } from './header-text.ts';
import type { IngressMetrics } from './ingress-metrics.ts';
import { jsonText } from './json-text.ts';
import type { IngressConfig } from './limits.ts';
import { isJson, prepareRoute } from './prepared-route.ts';
import type { DeclaredDeadlines, LaneQueue, PreparedRoute } from './prepared-route.ts';
import { refusalDelay_ms } from './reserve-entry.ts';
import type { Responder } from './responder.ts';
import type { SlotLimit } from './slot-limit.ts';
import { sendStream } from './stream-answer.ts';
import { toRonError, validationError } from './route-errors.ts';
import type { Validate } from './route-errors.ts';
import type { Answer, AnswerHeaders, Route } from './routes.ts';
import { SchemaCompiler } from './schema-compiler.ts';

export type IngressLog = Pick<Log, 'info' | 'warn' | 'error'>;

export interface PipelineInit {
  readonly config: IngressConfig;
  readonly metrics: IngressMetrics;
  readonly responder: Responder;
  readonly access: AccessCheck | undefined;
  readonly lanes: Readonly<Record<string, LaneQueue>>;
  readonly deadlines: DeclaredDeadlines | undefined;
  readonly log: IngressLog | undefined;
  /** Aborts when the listener closes. */
  readonly signal: AbortSignal;
  readonly event_slots: SlotLimit;
  /** A capability was accepted on a connection. */
  readonly onGranted: (ticket: Ticket, grant: Grant) => void;
  /** Throws when the connection was accepted only to show a capability, and this route asks for none. */
  readonly onOpenRoute: (ticket: Ticket) => void;
}

export class Pipeline {
  readonly #init: PipelineInit;
  readonly #prepared = new Map<string, PreparedRoute>();
  readonly #schemas = new SchemaCompiler();

  constructor(init: PipelineInit) {
    this.#init = init;
  }

  prepare(row: Route): PreparedRoute {
    const { config, metrics, lanes, deadlines, access } = this.#init;
    if (row.scope !== null && access === undefined) {
      throw new RonError('internal', `${row.method} ${row.path} needs ${row.scope}, but nothing checks capabilities`);
    }
    const prepared = prepareRoute(row, config, metrics, lanes, deadlines, this.#schemas);
    this.#prepared.set(prepared.name, prepared);
    return prepared;
  }

  /** The route of that name, once the table has been prepared. */
  preparedRoute(name: string): PreparedRoute | undefined {
    return this.#prepared.get(name);
  }

  /** Takes over a routed exchange. Everything after this ends in an answer. */
  begin(exchange: Exchange, prepared: PreparedRoute): void {
    exchange.prepared = prepared;
    exchange.metrics = prepared.metrics;
    exchange.budget_ms = requestBudget_ms(exchange.req, prepared.budget_ms());
    try {
      const verdict = this.#authorize(exchange, prepared.row);
      if (verdict instanceof Promise) {
        // If the budget is used up, the verdict is not awaited: a later rejection of it must not be unhandled.
        verdict.catch(() => undefined);
        exchange.deadline
          .run(() => verdict)
          .then((settled) => this.#admitted(exchange, prepared, settled))
          .catch((error: unknown) => this.fail(exchange, error));
      } else this.#admitted(exchange, prepared, verdict);
    } catch (error) {
      this.fail(exchange, error);
    }
  }

  #authorize(exchange: Exchange, row: Route): Grant | Refusal | Promise<Grant | Refusal> | undefined {
    if (row.scope === null) return undefined;
    if (exchange.verdict !== undefined) return exchange.verdict;
    const { req } = exchange;
    const authorization = headerText(req, 'authorization');
    return this.phase1(row, authorization, exchange.ip, row.facts?.(exchange), declaredBytes(req));
  }

  /** Phase 1 of the capability check. The route must ask for a scope. */
  phase1(
    row: Route,
    authorization: string | undefined,
    source_ip: string,
    facts: AccessFacts | undefined,
    body_bytes: number | undefined,
  ): Grant | Refusal | Promise<Grant | Refusal> {
    const { facts_later } = row;
    const request = { authorization, scope: row.scope!, source_ip, facts, facts_later, body_bytes };
    return this.#init.access!.checkHeaders(request, this.#init.signal);
  }

  /** A capability was accepted on this connection. One from behind a trusted proxy says nothing about the connection. */
  granted({ ticket }: Connection, ip: string, grant: Grant): void {
    if (ip !== ticket.ip) return;
    const is_news = grant.is_service === true && ticket.caller !== 'internal';
    if (ticket.counted || ticket.probation || is_news) this.#init.onGranted(ticket, grant);
  }

  #admitted(exchange: Exchange, prepared: PreparedRoute, verdict: Grant | Refusal | undefined): void {
    const { refusal } = exchange.place;
    if (refusal !== undefined && !this.#entersReserve(exchange, verdict)) return this.#refuseLoad(exchange, refusal);
    if (verdict === undefined) this.#init.onOpenRoute(exchange.connection.ticket);
    else if (!verdict.ok) throw refusalError(verdict);
    else {
      exchange.grant = verdict;
      this.granted(exchange.connection, exchange.ip, verdict);
    }
    check(prepared.parts.params, 'params', exchange.params);
    check(prepared.parts.query, 'query', exchange.query);
    this.#openBody(exchange, prepared);
  }

  /** For a request that found no open place. */
  #entersReserve(exchange: Exchange, verdict: Grant | Refusal | undefined): boolean {
    return verdict?.ok === true && verdict.is_service === true && exchange.place.enterReserve();
  }

  #refuseLoad(exchange: Exchange, refusal: RonError): void {
    exchange.place.end();
    const wait_ms = refusalDelay_ms(refusal);
    if (wait_ms === 0) throw refusal;
    sched.timer(wait_ms, () => this.fail(exchange, refusal), 'ingress-refusal');
  }

  #openBody(exchange: Exchange, prepared: PreparedRoute): void {
    const { req, grant } = exchange;
    const { row, limits } = prepared;
    const length = headerText(req, 'content-length');
    const has_body = length === undefined ? headerText(req, 'transfer-encoding') !== undefined : length !== '0';
    if (row.body === 'none') {
      if (has_body) throw new RonError('bad_request', 'this route takes no body');
      return this.#run(exchange, prepared);
    }
    if (prepared.reads_json && has_body && !isJson(headerText(req, 'content-type'))) {
      throw new RonError('unsupported_media', 'this route reads application/json');
    }
    checkDeclaredLength(req, limits.bytes_max);
    const phase2 = grant?.phase2.needsBody === true ? grant.phase2 : undefined;
    if (row.body === 'forward') {
      if (phase2 !== undefined)
        throw new RonError('forbidden', 'the capability restricts the body, which this route forwards unchecked');
      if (!isPlain(req, undefined)) throw new RonError('unsupported_media', 'this route reads bodies without encoding');
      exchange.is_forwarded = true;
    } else if (isPlain(req, phase2) && gathersWhole(row, length)) {
      if (exchange.expects_continue) exchange.res.writeContinue();
      return this.#gather(exchange, prepared);
    } else if (row.body === 'stream' || !isPlain(req, phase2)) {
      exchange.incoming = new Body(req, limits, phase2, () => exchange.gone);
    }
    if (exchange.expects_continue) exchange.res.writeContinue();
    if (row.body !== 'buffered') return this.#run(exchange, prepared);
    exchange.body_due_ms = sched.now_ms() + this.#init.config.read_timeout_ms;
    if (exchange.incoming === undefined) this.#gather(exchange, prepared);
    else {
      exchange.incoming
        .whole()
        .then((body) => this.#gathered(exchange, prepared, body))
        .catch((error: unknown) => this.fail(exchange, error));
    }
  }

  #gather(exchange: Exchange, prepared: PreparedRoute): void {
    exchange.plain = new PlainBody(exchange.req, prepared.limits.bytes_max, (error, body) => {
      try {
        if (body === undefined) throw error;
        this.#gathered(exchange, prepared, body);
      } catch (thrown) {
        this.fail(exchange, thrown);
      }
    });
  }

  #gathered(exchange: Exchange, prepared: PreparedRoute, body: Uint8Array): void {
    exchange.body_due_ms = Infinity;
    exchange.body_bytes = body;
    if (prepared.reads_json) {
      exchange.body = body.byteLength === 0 ? undefined : prepared.parts.parseJson(jsonText(body));
      check(prepared.parts.body, 'body', exchange.body ?? null);
    }
    this.#run(exchange, prepared);
  }

  /** Runs the handler in its lane and answers. */
  #run(exchange: Exchange, prepared: PreparedRoute): void {
    const { grant } = exchange;
    if (grant !== undefined && prepared.settles_first) {
      const refusal = (prepared.row.body === 'none' ? grant.phase2.end() : undefined) ?? grant.phase2.settle();
      if (refusal !== undefined) throw refusalError(refusal);
    }
    if (prepared.queue === undefined) return this.#runInline(exchange, prepared);
    exchange.place.queue();
    const begin = (): Promise<Answer> => {
      exchange.place.begin();
      const work = (async () => prepared.row.handler(exchange))();
      exchange.runsUntil(work);
      return work;
    };
    const key = exchange.place.address?.group ?? exchange.ip;
    prepared.queue
      .submit(prepared.row.lane, exchange.deadline, begin, key)
      .then((answer) => this.#answer(exchange, prepared, answer))
      .catch((error: unknown) => this.fail(exchange, error));
  }

  #runInline(exchange: Exchange, prepared: PreparedRoute): void {
    const answer = prepared.row.handler(exchange);
    if (answer instanceof Promise) {
      exchange.runsUntil(answer);
      exchange.deadline
        .run(() => answer)
        .then((settled) => this.#answer(exchange, prepared, settled))
        .catch((error: unknown) => this.fail(exchange, error));
    } else this.#answer(exchange, prepared, answer);
  }

  #answer(exchange: Exchange, prepared: PreparedRoute, answer: Answer): void {
    if (exchange.over) return;
    const { responder } = this.#init;
    const { res, corr_id, grant } = exchange;
    // The answer of a handler that did not read the whole body, or did not call `actsOn`, is refused.
    if (grant !== undefined && !prepared.settles_first) insist(grant.phase2.settle());
    // Byte and stream answers are under the budget until their first byte is out.
    if (answer.kind !== 'bytes' && answer.kind !== 'stream') exchange.answerBegan();
    switch (answer.kind) {
      case 'json': {
        const text = prepared.parts.serialize(answer.status, answer.value);
        return responder.text(res, answer.status, JSON_TYPE, text, corr_id, answer.headers);
      }
      case 'text':
        return responder.text(res, answer.status, answer.media_type, answer.text, corr_id, answer.headers);
      case 'empty':
        return responder.empty(res, answer.status, corr_id, answer.headers);
      case 'bytes':
        return this.answerBytes(exchange, answer.source, answer.headers);
      case 'stream':
        return this.#serve(exchange, sendStream(exchange, answer, responder));
      case 'events':
        return this.#serve(exchange, sendEvents(exchange, answer, responder, this.#init.event_slots));
      case 'forward':
        responder.prepareForward(res, corr_id);
        return this.#serve(exchange, answer.send(exchange.req, res, exchange.gone));
    }
  }

  /** An answer that takes its time. The drain waits for it, even if the client leaves. */
  #serve(exchange: Exchange, served: Promise<void>): void {
    exchange.runsUntil(served);
    served.catch((error: unknown) => {
      if (exchange.over || exchange.has_failed || !exchange.res.headersSent) return this.fail(exchange, error);
      this.#sourceFailed(exchange, error);
      exchange.res.destroy();
    });
  }

  /** The client sees a cut connection, not a problem: the reason is only in the log and the metric. */
  #sourceFailed(exchange: Exchange, error: unknown): void {
    const { corr_id, req } = exchange;
    this.#init.metrics.countRefusal(error);
    this.#init.log?.error({ corr_id, url: req.url, err: error }, 'an answer was cut: its source failed');
  }

  /** Ranges, conditions and streaming. From here on the answer goes by progress, not by the deadline. */
  answerBytes(exchange: Exchange, source: ByteSource, extra: AnswerHeaders | undefined): void {
    const { config, responder } = this.#init;
    const served = serveBytes(exchange.req, exchange.res, source, {
      corr_id: exchange.corr_id,
      signal: source.ram === undefined ? exchange.goneOrLate() : exchange.gone,
      onHead: () => exchange.answerBegan(),
      stall_ms: config.write_timeout_ms,
      headers: responder.byteHeaders(extra),
      refuse: (error) => this.fail(exchange, error),
      onOutcome: (outcome) => this.#onOutcome(exchange, outcome),
    });
    exchange.runsUntil(served);
    served.catch((error: unknown) => this.fail(exchange, error));
  }

  #onOutcome(exchange: Exchange, outcome: ByteOutcome): void {
    if (outcome.result === 'source') this.#sourceFailed(exchange, outcome.error);
  }

  /** The one way out for everything that went wrong. The first failure is the answer; a source that still runs is told. */
  fail(exchange: Exchange, thrown: unknown): void {
    if (exchange.over || exchange.has_failed) return;
    exchange.has_failed = true;
    const { metrics, responder, log } = this.#init;
    const error = toRonError(thrown);
    metrics.countRefusal(error);
    if (error.status >= 500 && !error.retryable) {
      const { method, url } = exchange.req;
      log?.error(
        { corr_id: exchange.corr_id, method, url, code: error.code, err: error.cause ?? error },
        'request failed',
      );
    }
    // A connection on probation gets one request.
    const close = error.code === 'request_timeout' || exchange.connection.ticket.probation;
    responder.problem(exchange.res, error, exchange.corr_id, close, exchange.prepared?.row.refusal_headers);
    exchange.endSource(error);
  }
}

/** Undefined when the headers do not tell: caveats apply to the decoded body, and a compressed one may be longer than that. */
function declaredBytes(req: IncomingMessage): number | undefined {
  const length = headerText(req, 'content-length');
  if (length === undefined) return headerText(req, 'transfer-encoding') === undefined ? 0 : undefined;
  return isPlain(req, undefined) ? Number(length) : undefined;
}

/** Whether a body that could be streamed is so small that it is not. */
function gathersWhole({ body, gather_bytes_max }: Route, length: string | undefined): boolean {
  return body === 'stream' && length !== undefined && Number(length) <= (gather_bytes_max ?? -1);
}

const JSON_TYPE = 'application/json; charset=utf-8';

function check(validate: Validate | undefined, where: string, value: unknown): void {
  if (validate !== undefined && !validate(value)) throw validationError(where, validate.errors);
}
