/**
 * Sends answers: each kind that a handler can return, or a problem for a failure.
 *
 * Contract: an exchange gets at most one answer; the first failure wins. A timeout while a handler waits for the body is the
 * client's: 408. Short answers are sent in one write. Bytes and streams are under the budget until their first byte is sent, then
 * under the limits on progress. If a source fails after that, the connection is cut, and only the log and the metric report the
 * reason. A problem ends the source of its exchange.
 * Bound and cancellation: those of the exchange; nothing else is held.
 *
 *   answers.answer(exchange, prepared, json(200, { name }));
 *   answers.fail(exchange, new RonError('not_found', 'no such name'));
 */
import { isRonError, sched } from '@ron/kernel';
import type { Log } from '@ron/telemetry';
import type { RonError } from '@ron/kernel';
import { bodyLate } from '../body/body.ts';
import { insist } from '../guards/access.ts';
import { serveBytes } from '../bytes/bytes.ts';
import type { ByteOutcome, ByteSource } from '../bytes/bytes.ts';
import { cutAnswer } from './cut-answer.ts';
import { sendEvents } from './event-stream.ts';
import type { Exchange } from '../request/exchange.ts';
import type { IngressMetrics } from '../ingress-metrics.ts';
import type { IngressConfig } from '../limits.ts';
import type { PreparedRoute } from '../table/prepared-route.ts';
import type { ForwardAnswer } from '../proxy/reverse-proxy.ts';
import type { Responder } from './responder.ts';
import { toRonError } from '../table/route-errors.ts';
import type { RouteAnswer, AnswerHeaders } from '../table/routes.ts';
import type { SlotLimit } from '../guards/slot-limit.ts';
import { sendStream } from './stream-answer.ts';

export type IngressLog = Pick<Log, 'info' | 'warn' | 'error'>;

export interface AnswerSenderInit {
  readonly config: IngressConfig;
  readonly metrics: IngressMetrics;
  readonly responder: Responder;
  readonly log: IngressLog | undefined;
  readonly event_slots: SlotLimit;
}

const JSON_TYPE = 'application/json; charset=utf-8';

export class AnswerSender {
  readonly #init: AnswerSenderInit;

  constructor(init: AnswerSenderInit) {
    this.#init = init;
  }

  /** Sends the result of a handler. */
  answer(exchange: Exchange, prepared: PreparedRoute, answer: RouteAnswer): void {
    if (exchange.over) return;
    const { config, event_slots, responder } = this.#init;
    const { res, corr_id, grant } = exchange;
    // The answer of a handler that did not read the whole body, or did not call `actsOn`, is refused.
    if (grant !== undefined && !prepared.settles_first) insist(grant.phase2.settle());
    // Byte and stream answers are under the budget until their first byte is sent.
    if (answer.kind !== 'bytes' && answer.kind !== 'stream') exchange.answerBegan();
    switch (answer.kind) {
      case 'json': {
        const text = prepared.parts.serialize(answer.status, answer.value);
        return responder.text(res, answer.status, JSON_TYPE, text, corr_id, answer.headers);
      }
      case 'text':
        return responder.text(res, answer.status, answer.media_type, answer.text, corr_id, answer.headers);
      case 'data':
        return responder.data(res, answer, corr_id);
      case 'empty':
        return responder.empty(res, answer.status, corr_id, answer.headers);
      case 'bytes':
        return this.answerBytes(exchange, answer.source, answer.headers);
      case 'stream':
        return this.#serve(exchange, sendStream(exchange, answer, responder));
      case 'events':
        return this.#serve(exchange, sendEvents(exchange, answer, responder, event_slots, config.events_heartbeat_ms));
      case 'forward':
        responder.prepareForward(res, corr_id);
        return this.#serve(exchange, this.#forward(exchange, answer));
    }
  }

  #forward({ req, res, gone, permit }: Exchange, answer: ForwardAnswer): Promise<void> {
    const onBusy = (): void => this.#init.metrics.rejected.at('busy').inc();
    return answer.send(req, res, { gone, address: permit.address, onBusy });
  }

  /** A long-running answer. The drain waits for it, even if the client leaves. */
  #serve(exchange: Exchange, served: Promise<void>): void {
    exchange.runsUntil(served);
    served.catch((error: unknown) => {
      if (exchange.over || exchange.has_failed || !exchange.res.headersSent) return this.fail(exchange, error);
      // A write may fail because the client left, before the connection is closed.
      if (!exchange.req.socket.destroyed) this.#sourceFailed(exchange, error);
      cutAnswer(exchange.res);
    });
  }

  /** The client sees a cut connection, not a problem: only the log and the metric report the reason. */
  #sourceFailed(exchange: Exchange, error: unknown): void {
    const { corr_id, req } = exchange;
    this.#init.metrics.countRefusal(error);
    this.#init.log?.error({ corr_id, url: req.url, err: error }, 'answer cut: its source failed');
  }

  /** Ranges, conditions and streaming. From here on limits on progress apply instead of the deadline. */
  answerBytes(exchange: Exchange, source: ByteSource, extra: AnswerHeaders | undefined): void {
    const { config, responder } = this.#init;
    const served = serveBytes(exchange.req, exchange.res, source, {
      corr_id: exchange.corr_id,
      signal: source.ram === undefined ? exchange.goneOrLate() : exchange.gone,
      onHead: () => exchange.answerBegan(),
      stall_ms: config.write_timeout_ms,
      headers: responder.byteHeaders(extra),
      lines: exchange.cors_lines,
      refuse: (error) => this.fail(exchange, error),
      onOutcome: (outcome) => this.#onOutcome(exchange, outcome),
    });
    exchange.runsUntil(served);
    served.catch((error: unknown) => this.fail(exchange, error));
  }

  #onOutcome(exchange: Exchange, outcome: ByteOutcome): void {
    if (outcome.result === 'source') this.#sourceFailed(exchange, outcome.error);
  }

  /** The only exit for failures. The first failure is the answer; a running source is ended. */
  fail(exchange: Exchange, thrown: unknown): void {
    if (exchange.has_failed) return;
    exchange.has_failed = true;
    const isClientLate = isRonError(thrown, 'timeout') && exchange.awaits_body;
    this.#refuse(exchange, isClientLate ? bodyLate() : thrown);
  }

  /** As `fail`, after `wait_ms`. The answer is decided now: a later failure does not replace it. */
  failLater(exchange: Exchange, refusal: RonError, wait_ms: number): void {
    exchange.has_failed = true;
    sched.timer(wait_ms, () => this.#refuse(exchange, refusal), 'ingress-refusal');
  }

  #refuse(exchange: Exchange, thrown: unknown): void {
    if (exchange.over) return;
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
