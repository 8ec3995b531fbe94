/**
 * Processes a routed request: capability, parameters, body, queue, handler, in this order. `AnswerSender` sends the
 * answer.
 *
 * Contract: the capability is checked before a byte of the body is read and before any queue. The body is limited,
 * decoded through the decompression guard and checked by the capability while it is read. A handler of a queued lane
 * runs in a worker of that queue, under the deadline of the request. Every failure becomes one problem answer.
 * Bound and cancellation: those of the exchange; nothing else is held.
 */
import { codingOf } from '@ron/http';
import { RonError, sched } from '@ron/kernel';
import type { AccessCheck, AccessFacts, AccessGrant, AccessVerdict, Phase2 } from '@ron/proto';
import { insist, refusalError } from '../guards/access.ts';
import type { AnswerSender } from '../answer/answer-sender.ts';
import type { Cors } from '../answer/cors.ts';
import { Body, BufferedBody, tooLarge } from '../body/body.ts';
import type { Gathered } from '../body/body.ts';
import { requestBudget_ms } from './budget.ts';
import { LOCAL_PEER } from '../connection/connection-limiter.ts';
import type { Connection, Ticket } from '../connection/connection.ts';
import type { Exchange } from './exchange.ts';
import type { IngressMetrics } from '../ingress-metrics.ts';
import { jsonText } from '../body/json-text.ts';
import type { IngressConfig } from '../limits.ts';
import { isJson, isRawType, prepareRoute } from '../table/prepared-route.ts';
import type { DeclaredDeadlines, LaneQueue, PreparedRoute } from '../table/prepared-route.ts';
import { refusalDelay_ms } from '../guards/reserve-entry.ts';
import { validationError } from '../table/route-errors.ts';
import type { Validate } from '../table/route-errors.ts';
import type { RouteAnswer, Route } from '../table/routes.ts';
import { SchemaCompiler } from '../table/schema-compiler.ts';

/** For `ip` caveats, the peer of a Unix socket is this machine. */
const LOCAL_IP = '127.0.0.1';
const NO_BYTES = new Uint8Array(0);

export interface PipelineInit {
  readonly config: IngressConfig;
  readonly metrics: IngressMetrics;
  readonly answers: AnswerSender;
  readonly access: AccessCheck | undefined;
  readonly cors: Cors | undefined;
  readonly lanes: Readonly<Record<string, LaneQueue>>;
  readonly deadlines: DeclaredDeadlines | undefined;
  /** Aborts when the listener closes. */
  readonly signal: AbortSignal;
  /** A capability was accepted on a connection. */
  readonly onGranted: (ticket: Ticket, grant: AccessGrant) => void;
  /** Throws if the connection is on probation: it must present a capability, and this route requires none. */
  readonly onOpenRoute: (ticket: Ticket) => void;
}

export class Pipeline {
  readonly #init: PipelineInit;
  readonly #answers: AnswerSender;
  readonly #prepared = new Map<string, PreparedRoute>();
  readonly #schemas = new SchemaCompiler();

  constructor(init: PipelineInit) {
    this.#init = init;
    this.#answers = init.answers;
  }

  prepare(row: Route): PreparedRoute {
    const { config, metrics, lanes, deadlines, access } = this.#init;
    if (row.scope !== null && access === undefined) {
      throw new RonError(
        'internal',
        `${row.method} ${row.path} requires ${row.scope}, but the listener has no capability checker`,
      );
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
    if (prepared.row.cors === true && this.#init.cors !== undefined)
      exchange.cors_lines = this.#init.cors.linesFor(exchange.headers.origin);
    // [storage I-4] [kms I-4] [index I-4] [edge I-4] [interop I-4] Every routed request has a budget.
    const budget_ms = prepared.budget_ms();
    exchange.budget_ms = exchange.has_budget ? requestBudget_ms(exchange.req, budget_ms) : budget_ms;
    try {
      // Before the capability check, which reads facts from the query.
      if (prepared.row.body !== 'forward') refuseRepeats(exchange.query);
      // [index I-11] Before any queue.
      const verdict = this.#authorize(exchange, prepared.row);
      if (verdict instanceof Promise) {
        // If the budget ends first, the check is not awaited: a later rejection must not be unhandled.
        verdict.catch(() => undefined);
        exchange.deadline
          .run(() => verdict)
          .then((settled) => this.#admitted(exchange, prepared, settled))
          .catch((error: unknown) => this.#answers.fail(exchange, error));
      } else this.#admitted(exchange, prepared, verdict);
    } catch (error) {
      this.#answers.fail(exchange, error);
    }
  }

  #authorize(exchange: Exchange, row: Route): AccessVerdict | Promise<AccessVerdict> | undefined {
    if (row.scope === null) return undefined;
    if (exchange.verdict !== undefined) return exchange.verdict;
    const { authorization, ip, body_length, content_encoding } = exchange;
    // Caveats apply to the decoded body. A compressed body does not declare its decoded length, which may even be smaller.
    const body_bytes = content_encoding === undefined ? body_length : undefined;
    return this.phase1(row, authorization, ip, row.facts?.(exchange), body_bytes);
  }

  /** Phase 1 of the capability check. The route must require a scope. */
  phase1(
    row: Route,
    authorization: string | undefined,
    ip: string,
    facts: AccessFacts | undefined,
    body_bytes: number | undefined,
  ): AccessVerdict | Promise<AccessVerdict> {
    const { facts_later, facts_ignored } = row;
    const source_ip = ip === LOCAL_PEER ? LOCAL_IP : ip;
    const request = { authorization, scope: row.scope!, source_ip, facts, facts_later, facts_ignored, body_bytes };
    return this.#init.access!.checkHeaders(request, this.#init.signal);
  }

  /** A capability was accepted on this connection. A capability from behind a trusted proxy does not vouch for the connection. */
  granted({ ticket }: Connection, ip: string, grant: AccessGrant): void {
    if (ip !== ticket.ip) return;
    const is_news = grant.is_service === true && ticket.caller !== 'internal';
    if (ticket.counted || ticket.probation || is_news) this.#init.onGranted(ticket, grant);
  }

  #admitted(exchange: Exchange, prepared: PreparedRoute, verdict: AccessVerdict | undefined): void {
    const { refusal } = exchange.permit;
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

  /** For a request that found no open permit. */
  #entersReserve(exchange: Exchange, verdict: AccessVerdict | undefined): boolean {
    return verdict?.ok === true && verdict.is_service === true && exchange.permit.enterReserve();
  }

  #refuseLoad(exchange: Exchange, refusal: RonError): void {
    exchange.permit.end();
    const wait_ms = refusalDelay_ms(refusal);
    if (wait_ms === 0) throw refusal;
    this.#answers.failLater(exchange, refusal, wait_ms);
  }

  #openBody(exchange: Exchange, prepared: PreparedRoute): void {
    const { req, grant } = exchange;
    const { row, limits } = prepared;
    if (row.body === 'none') {
      if (exchange.has_body) throw new RonError('bad_request', 'this route accepts no body');
      return this.#run(exchange, prepared);
    }
    if (prepared.reads_json && exchange.has_body) requireType(row, exchange.content_type);
    if ((exchange.body_length ?? 0) > limits.bytes_max) throw tooLarge(limits.bytes_max);
    if (row.refuses_codings === true) requireNoCoding(exchange.content_encoding);
    const phase2 = grant?.phase2.needsBody === true ? grant.phase2 : undefined;
    if (!exchange.has_body && row.body !== 'forward') return this.#runWithoutBody(exchange, prepared, phase2);
    const is_plain = exchange.content_encoding === undefined && phase2 === undefined;
    if (row.body === 'forward') {
      if (phase2 !== undefined)
        throw new RonError(
          'forbidden',
          'the capability restricts the body, which this route forwards without checking it',
        );
      requireNoCoding(exchange.content_encoding);
      exchange.is_forwarded = true;
    } else if (is_plain && gathersWhole(row, exchange.content_length)) {
      if (exchange.expects_continue) exchange.res.writeContinue();
      return this.#gather(exchange, prepared);
    } else if (row.body === 'stream' || !is_plain) {
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
        .catch((error: unknown) => this.#answers.fail(exchange, error));
    }
  }

  /** Without framing headers a request has no body (RFC 9112, 6.3), and Node emits no events for it. */
  #runWithoutBody(exchange: Exchange, prepared: PreparedRoute, phase2: Phase2 | undefined): void {
    if (phase2 !== undefined) insist(phase2.end());
    this.#gathered(exchange, prepared, NO_BYTES);
  }

  #gather(exchange: Exchange, prepared: PreparedRoute): void {
    exchange.buffered = new BufferedBody(exchange.req, prepared.limits.bytes_max, exchange, this.#onGathered);
  }

  readonly #onGathered: Gathered<Exchange> = (exchange, error, body) => {
    try {
      if (body === undefined) throw error;
      this.#gathered(exchange, exchange.prepared!, body);
    } catch (thrown) {
      this.#answers.fail(exchange, thrown);
    }
  };

  #gathered(exchange: Exchange, prepared: PreparedRoute, body: Uint8Array): void {
    exchange.body_due_ms = Infinity;
    exchange.body_bytes = body;
    if (prepared.reads_json && !isRawType(prepared.row, exchange.content_type)) {
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
    exchange.permit.queue();
    const begin = (): Promise<RouteAnswer> => {
      exchange.permit.begin();
      const work = (async () => prepared.row.handler(exchange))();
      exchange.runsUntil(work);
      return work;
    };
    const key = exchange.permit.address?.group ?? exchange.ip;
    prepared.queue
      .submit(prepared.row.lane, exchange.deadline, begin, key)
      .then((answer) => this.#answers.answer(exchange, prepared, answer))
      .catch((error: unknown) => this.#answers.fail(exchange, error));
  }

  #runInline(exchange: Exchange, prepared: PreparedRoute): void {
    const answer = prepared.row.handler(exchange);
    if (answer instanceof Promise) {
      exchange.runsUntil(answer);
      exchange.deadline
        .run(() => answer)
        .then((settled) => this.#answers.answer(exchange, prepared, settled))
        .catch((error: unknown) => this.#answers.fail(exchange, error));
    } else this.#answers.answer(exchange, prepared, answer);
  }
}

function requireNoCoding(coding: string | undefined): void {
  if (codingOf(coding) !== undefined)
    throw new RonError('unsupported_media', 'this route accepts bodies without Content-Encoding only');
}

/** Whether a streamed body is small enough to be buffered instead. */
function gathersWhole({ body, gather_bytes_max }: Route, length: string | undefined): boolean {
  return body === 'stream' && length !== undefined && Number(length) <= (gather_bytes_max ?? -1);
}

function requireType(row: Route, content_type: string | undefined): void {
  if (isJson(content_type) || isRawType(row, content_type)) return;
  const accepted = ['application/json', ...(row.body_types ?? [])].join(' or ');
  throw new RonError('unsupported_media', `this route accepts ${accepted} only`);
}

/** A repeated key would be an array where all handlers expect text. */
function refuseRepeats(query: Readonly<Record<string, unknown>>): void {
  for (const key in query)
    if (typeof query[key] !== 'string') throw new RonError('validation', 'the query repeats a key');
}

function check(validate: Validate | undefined, where: string, value: unknown): void {
  if (validate !== undefined && !validate(value)) throw validationError(where, validate.errors);
}
