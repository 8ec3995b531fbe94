/**
 * Writes answers, and is the only place that sets the headers of every answer.
 *
 * Contract: every answer has `nosniff`, `no-referrer`, the correlation id and a correct length. While draining, and
 * whenever the rest of the request will not be read, it also closes the connection. Answers name an allowed origin only on
 * rows with `cors`. A
 * failure after the headers are sent cuts the connection (`cut-answer.ts`): a cut answer never looks complete.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { cutAnswer, watchFraming } from './cut-answer.ts';
import { problemFor } from './problem.ts';
import { lingerOnClose } from '../connection/linger.ts';
import type { Reasons } from './reasons.ts';
import { Exchange } from '../request/exchange.ts';
import { endWith } from '../bytes/transfer.ts';
import type { AnswerHeaders, RouteAnswer } from '../table/routes.ts';

type DataAnswer = Extract<RouteAnswer, { readonly kind: 'data' }>;

/** An unread body up to this size is read and dropped, which costs less than a new connection. */
const DISCARD_BYTES_MAX = 64 * 1024;

export interface ResponderInit {
  /** Whether answers are sent over TLS: then they carry HSTS. */
  readonly tls: boolean;
  /** The reason codes of the service. Default none. */
  readonly reasons?: Reasons | undefined;
}

export class Responder {
  draining = false;
  /** A flat list of names and values: the form that Node writes fastest. */
  readonly #common: readonly string[];
  readonly #reasons: Reasons | undefined;

  constructor(init: ResponderInit) {
    const common = ['X-Content-Type-Options', 'nosniff', 'Referrer-Policy', 'no-referrer'];
    if (init.tls) common.push('Strict-Transport-Security', 'max-age=31536000');
    this.#common = common;
    this.#reasons = init.reasons;
  }

  /** The headers of every answer, for writers that build their own head. */
  get common(): readonly string[] {
    return this.#common;
  }

  /** The same by name, for the byte server. */
  byteHeaders(extra: AnswerHeaders | undefined): Record<string, string> {
    const headers: Record<string, string> = { ...extra };
    for (let i = 0; i < this.#common.length; i += 2) headers[this.#common[i]!] = this.#common[i + 1]!;
    if (this.draining) headers['Connection'] = 'close';
    return headers;
  }

  /** For an answer whose head comes from the upstream. */
  prepareForward(res: ServerResponse, corr_id: string): void {
    for (let i = 0; i < this.#common.length; i += 2) res.setHeader(this.#common[i]!, this.#common[i + 1]!);
    res.setHeader('X-Corr-ID', corr_id);
    if (bodyLeft(res.req) !== 'nothing') lingerOnClose(res.req.socket);
    if (this.draining) res.setHeader('Connection', 'close');
  }

  text(
    res: ServerResponse,
    status: number,
    media_type: string,
    text: string,
    corr_id: string,
    extra?: AnswerHeaders,
  ): void {
    const head = this.#head(res, corr_id, extra);
    const bytes = Buffer.byteLength(text);
    head.push('Content-Type', media_type, 'Content-Length', String(bytes));
    res.writeHead(status, head);
    if (res.req.method === 'HEAD') res.end();
    // ASCII text needs no encoding.
    else res.end(text, bytes === text.length ? 'latin1' : 'utf8');
  }

  data(res: ServerResponse, { status, media_type, pieces, headers }: DataAnswer, corr_id: string): void {
    const head = this.#head(res, corr_id, headers);
    const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0);
    head.push('Content-Type', media_type, 'Content-Length', String(bytes));
    res.writeHead(status, head);
    if (res.req.method === 'HEAD') res.end();
    else endWith(res, pieces);
  }

  /** The head of an answer whose length is not known. */
  streamHead(
    res: ServerResponse,
    status: number,
    media_type: string,
    corr_id: string,
    extra: AnswerHeaders | undefined,
  ): void {
    const head = this.#head(res, corr_id, extra);
    head.push('Content-Type', media_type);
    res.writeHead(status, head);
    watchFraming(res);
  }

  empty(res: ServerResponse, status: number, corr_id: string, extra?: AnswerHeaders): void {
    const head = this.#head(res, corr_id, extra);
    if (status !== 204 && status !== 304) head.push('Content-Length', '0');
    res.writeHead(status, head);
    res.end();
  }

  /** Refuses. `close` forces the connection closed after the answer; an unread body does so anyway. */
  problem(res: ServerResponse, error: unknown, corr_id: string, close = false, extra?: AnswerHeaders): void {
    if (res.headersSent || res.destroyed) {
      cutAnswer(res);
      return;
    }
    const { status, headers, body } = problemFor(error, corr_id, this.#reasons);
    const head = [...this.#common];
    for (const name in headers) head.push(name, headers[name]!);
    if (extra !== undefined) for (const name in extra) head.push(name, extra[name]!);
    pushLines(head, res.req);
    if (this.#closes(res.req) || close) head.push('Connection', 'close');
    res.writeHead(status, head);
    if (res.req.method === 'HEAD') res.end();
    else res.end(body);
  }

  #head(res: ServerResponse, corr_id: string, extra: AnswerHeaders | undefined): string[] {
    const head = [...this.#common];
    head.push('X-Corr-ID', corr_id);
    if (extra !== undefined) for (const name in extra) head.push(name, extra[name]!);
    pushLines(head, res.req);
    if (this.#closes(res.req)) head.push('Connection', 'close');
    return head;
  }

  /** Whether the answer announces the close. Either way the connection lingers, so that the client can finish sending. */
  #closes(req: IncomingMessage): boolean {
    const left = bodyLeft(req);
    if (left !== 'nothing') lingerOnClose(req.socket);
    return this.draining || left === 'too much';
  }
}

/** How much of the body is unread. A body that is partly read counts as too much to discard. */
function bodyLeft(req: IncomingMessage): 'nothing' | 'little' | 'too much' {
  if (req.complete) return 'nothing';
  const raw = req.rawHeaders;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!;
    if (name.length === 14 && name.toLowerCase() === 'content-length') {
      const length = Number(raw[i + 1]);
      if (length === 0) return 'nothing';
      return length > DISCARD_BYTES_MAX || req.readableDidRead ? 'too much' : 'little';
    }
    if (name.length === 17 && name.toLowerCase() === 'transfer-encoding') return 'too much';
  }
  return 'nothing';
}

function pushLines(head: string[], req: IncomingMessage): void {
  const lines = Exchange.of(req)?.cors_lines;
  if (lines !== undefined && lines.length > 0) head.push(...lines);
}
