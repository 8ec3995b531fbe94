/**
 * Answers requests for bytes that are verified in RAM, or readable without waiting, before routing.
 *
 * Contract: the same answer as the route gives, by the same admission, drain, capability, conditional, correlation id
 * and metric code; the contract suite runs with it on and off. Requests that it cannot answer at once go to the router.
 * Bound: holds nothing; the source bounds its own cache. A body of up to `TEXT_BYTES_MAX` is sent in one write with its
 * head; an answer that the client does not read at once is watched like any other.
 */
import { validateHeaderValue } from '@ron/kernel/http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { assert, sched } from '@ron/kernel';
import type { Admission, ClientAddress } from '@ron/kernel';
import type { AccessFacts, AccessGrant, AccessVerdict } from '@ron/proto';
import { refusalError } from '../guards/access.ts';
import { chooseVariant } from '../bytes/accept-encoding.ts';
import type { AnswerSender } from '../answer/answer-sender.ts';
import type { Cors } from '../answer/cors.ts';
import { ageNow, byteHead, cacheStatusNow, varyByEncoding } from '../bytes/byte-answer.ts';
import type { Batch, ByteSource } from '../bytes/bytes.ts';
import type { Connection } from '../connection/connection.ts';
import { CopiedBytes, TEXT_BYTES_MAX, textOf } from '../bytes/copied-bytes.ts';
import { Exchange } from '../request/exchange.ts';
import type { ExchangeHost } from '../request/exchange.ts';
import { hasBody } from '../guards/header-checks.ts';
import type { HeaderView } from '../guards/header-scan.ts';
import type { Pipeline } from '../request/pipeline.ts';
import { InflightPermit } from '../guards/inflight-permit.ts';
import { acceptEncodingIn, originIn } from './simple-get.ts';
import type { SimpleGet } from './simple-get.ts';
import type { PreparedRoute } from '../table/prepared-route.ts';
import type { Responder } from '../answer/responder.ts';
import type { Sweeper } from '../connection/sweeper.ts';
import { endWith } from '../bytes/transfer.ts';

/** Larger bodies go through the byte server, which sends them in pieces. */
const WHOLE_BYTES_MAX = 1024 * 1024;

/** Its variants must be in RAM too. */
export type RamSource = ByteSource & { readonly ram: Batch };

/** An object in RAM with its prepared answer. A cache keeps it with the object; `openNow` makes a new one for each read. */
export class FastEntry {
  readonly source: RamSource;
  /** Facts for the capability check, on routes that require a capability. */
  readonly facts: AccessFacts | undefined;
  /** Whether the answer depends on `Accept-Encoding`. */
  readonly varies: boolean;
  /** Memory for the body as text, which small bodies have in addition to their bytes. */
  readonly text_bytes: number;
  #body_text: string | undefined;
  /** The same content in all codings, including this one; undefined if it has no coding and no variants. */
  readonly #variants: readonly FastEntry[] | undefined;
  /**
   * Names and values of the 200 answer as a flat list, built by the first answer. The last values differ between answers:
   * `Cache-Status` with a `ttl` and `Age` if the source has them, then the correlation id.
   */
  head_200: string[] | undefined = undefined;
  head_304: string[] | undefined = undefined;
  /** The same as text, for answers that are written straight to the socket. */
  head_200_text: string | undefined = undefined;
  head_304_text: string | undefined = undefined;

  /** `isVariant`: made for one coding of another entry. */
  constructor(source: RamSource, facts?: AccessFacts, isVariant = false) {
    this.source = source;
    this.facts = facts;
    this.varies = isVariant || source.variants !== undefined || source.encoding !== undefined;
    const others = source.variants?.map((variant) => {
      assert(variant.ram !== undefined, 'a variant of an object in RAM is in RAM');
      return new FastEntry(variant as RamSource, facts, true);
    });
    this.#variants = this.varies ? [this, ...(others ?? [])] : undefined;
    this.text_bytes = source.size <= TEXT_BYTES_MAX ? source.size : 0;
    this.#body_text = source instanceof CopiedBytes ? source.text : undefined;
  }

  /** The body as text, if it is small. Made by the first answer: many entries are replaced before they are used. */
  get body_text(): string | undefined {
    const { ram, size } = this.source;
    if (this.#body_text === undefined && size <= TEXT_BYTES_MAX)
      this.#body_text = textOf(ram.length === 1 ? ram[0]! : Buffer.concat(ram));
    return this.#body_text;
  }

  get encoding(): string | undefined {
    return this.source.encoding;
  }

  /**
   * The variant for a client. Undefined if the route has to decide: no coding is acceptable, or the client sends no
   * `Accept-Encoding` and every variant has a coding.
   */
  accepted(header: string | undefined): FastEntry | undefined {
    if (this.#variants === undefined) return this;
    const chosen = chooseVariant(this.#variants, header);
    return header === undefined && chosen?.encoding !== undefined ? undefined : chosen;
  }
}

export interface FastSource {
  /** The route that answers the same requests if the bytes are not in RAM, such as `GET /o/:addr`. */
  readonly route: string;
  /** Looks up the whole request target, unparsed. Called for every request: it must be cheap, and each object must have one target. */
  lookup(target: string): FastEntry | undefined;
  /**
   * Bytes that are not in the cache but can be read without waiting. Called if `lookup` found nothing, the route needs
   * no capability and admission has room, before or after the request has taken its permit. It may read, but not wait.
   */
  openNow?(target: string): FastEntry | undefined;
  /** Called once for each answer from an entry, for counters. Must not throw. */
  served?(entry: FastEntry): void;
}

export interface FastPathInit {
  readonly source: FastSource;
  readonly admission: Admission;
  readonly responder: Responder;
  readonly sweeper: Sweeper;
  readonly host: ExchangeHost;
  readonly pipeline: Pipeline;
  readonly answers: AnswerSender;
  /** The origins that the route allows; undefined if it allows none. */
  readonly cors: Cors | undefined;
  /** Every answer is logged, so none is sent without an exchange. */
  readonly access_log: boolean;
}

/** A request after the guards. One object, reused for every request. */
export interface Arrival {
  connection: Connection;
  corr_id: string;
  ip: string;
  /** The address that its permit counts for. */
  address: ClientAddress | undefined;
  start_ms: number;
  /** A capability check that the fast path started but could not await. It is passed on, so that a rate caveat counts the request once. */
  verdict: Promise<AccessVerdict> | undefined;
}

export class FastPath {
  readonly #init: FastPathInit;
  readonly #route: PreparedRoute;

  /** `route` is the row that the source names, prepared. */
  constructor(init: FastPathInit, route: PreparedRoute) {
    this.#init = init;
    this.#route = route;
  }

  lookup(target: string): FastEntry | undefined {
    return this.#init.source.lookup(target);
  }

  openNow(req: IncomingMessage): FastEntry | undefined {
    return req.method === 'GET' || req.method === 'HEAD' ? this.#openNow(req.url!) : undefined;
  }

  #openNow(target: string): FastEntry | undefined {
    if (this.#route.row.scope !== null) return undefined;
    try {
      return this.#init.source.openNow?.(target);
    } catch {
      // The route encounters the same error and reports it.
      return undefined;
    }
  }

  /** For a simple GET: an entry that can be answered completely, or with 304, in one write. */
  entryFor({ target, if_none_match, headers }: SimpleGet): FastEntry | undefined {
    if (this.#route.row.scope !== null || this.#init.access_log) return undefined;
    const found = this.#init.source.lookup(target) ?? this.#openNow(target);
    const entry = found?.varies === true ? found.accepted(acceptEncodingIn(headers)) : found;
    if (entry === undefined || entry.source.size > WHOLE_BYTES_MAX) return undefined;
    return if_none_match === undefined || if_none_match === entry.source.etag ? entry : undefined;
  }

  /** The head as text, without date and correlation id. Throws if a header is invalid. */
  headText(entry: FastEntry, status: 200 | 304, request: SimpleGet): string {
    const head =
      status === 200
        ? (entry.head_200_text ??= this.#headText(entry, 200))
        : (entry.head_304_text ??= this.#headText(entry, 304));
    const { born_ms, cache_status } = entry.source;
    const { cors } = this.#init;
    const allowed = cors?.isEnabled === true ? cors.textFor(originIn(request.headers)) : '';
    const status_line =
      cache_status?.expires_ms === undefined ? '' : `Cache-Status: ${cacheStatusNow(cache_status)}\r\n`;
    const age_line = born_ms === undefined ? '' : `Age: ${ageNow(born_ms)}\r\n`;
    return head + allowed + status_line + age_line;
  }

  #headText(entry: FastEntry, status: 200 | 304): string {
    const head = this.#head(entry, status);
    let text = status === 200 ? 'HTTP/1.1 200 OK\r\n' : 'HTTP/1.1 304 Not Modified\r\n';
    const end = head.length - tailOf(entry.source);
    for (let i = 0; i < end; i += 2) {
      validateHeaderValue(head[i]!, head[i + 1]!);
      text += `${head[i]}: ${head[i + 1]}\r\n`;
    }
    return text;
  }

  served(entry: FastEntry): void {
    this.#init.source.served?.(entry);
  }

  /** Counts an answer that was sent without an exchange. */
  count(status: number, seconds: number): void {
    this.#route.metrics.count(status, seconds);
  }

  /** Answers, or returns false to leave the request to the router. On true, it owns the in-flight permit of the caller. */
  serve(req: IncomingMessage, res: ServerResponse, found: FastEntry, view: HeaderView, arrival: Arrival): boolean {
    try {
      const entry = found.varies ? found.accepted(view.accept_encoding) : found;
      return entry !== undefined && this.#serve(req, res, entry, view, arrival);
    } catch (error) {
      // A defect in a checker or an entry must not reach the event loop.
      this.#init.answers.fail(this.#exchange(req, res, arrival), error);
      return true;
    }
  }

  #serve(req: IncomingMessage, res: ServerResponse, entry: FastEntry, view: HeaderView, arrival: Arrival): boolean {
    const { method } = req;
    if ((method !== 'GET' && method !== 'HEAD') || hasBody(view) || view.expect) return false;
    if (this.#route.row.scope === null) {
      if (arrival.connection.ticket.probation) return false;
    } else {
      const verdict = this.#init.pipeline.phase1(this.#route.row, view.authorization, arrival.ip, entry.facts, 0);
      if (verdict instanceof Promise) {
        // The router awaits it and reports a failure. If the request never gets there, a rejection must not end the process.
        verdict.catch(() => undefined);
        arrival.verdict = verdict;
        return false;
      }
      const refusal = verdict.ok ? (verdict.phase2.end() ?? verdict.phase2.settle()) : verdict;
      if (refusal !== undefined) {
        this.#init.answers.fail(this.#exchange(req, res, arrival), refusalError(refusal));
        return true;
      }
      this.#init.pipeline.granted(arrival.connection, arrival.ip, verdict as AccessGrant);
    }
    const { source } = entry;
    const conditional = view.conditional || (view.if_none_match !== undefined && view.if_none_match !== source.etag);
    if (conditional || source.size > WHOLE_BYTES_MAX) {
      this.served(entry);
      this.#init.answers.answerBytes(this.#exchange(req, res, arrival), source, undefined);
      return true;
    }
    const status = view.if_none_match === undefined ? 200 : 304;
    const head =
      status === 200 ? (entry.head_200 ??= this.#head(entry, 200)) : (entry.head_304 ??= this.#head(entry, 304));
    const lines = this.#init.cors?.linesFor(view.origin);
    updateTail(head, source, arrival.corr_id);
    res.writeHead(status, lines === undefined || lines.length === 0 ? head : [...lines, ...head]);
    if (status === 304 || method === 'HEAD') res.end();
    else if (entry.body_text !== undefined) res.end(entry.body_text, 'latin1');
    else endWith(res, source.ram);
    this.served(entry);
    this.#settle(req, res, arrival, status);
    return true;
  }

  /** Releases the permit at once if the whole answer was sent; otherwise watches the answer until it is. */
  #settle(req: IncomingMessage, res: ServerResponse, arrival: Arrival, status: number): void {
    if (req.socket.writableLength === 0 && !this.#init.access_log) {
      this.#init.admission.leave(arrival.address);
      this.#route.metrics.count(status, (sched.now_ms() - arrival.start_ms) / 1000);
      return;
    }
    this.#exchange(req, res, arrival);
  }

  #head(entry: FastEntry, status: 200 | 304): string[] {
    const { source } = entry;
    const answer = status === 304 ? { status } : { status, start: 0, end: source.size };
    const head = byteHead(source, answer, this.#init.responder.byteHeaders(undefined));
    if (entry.varies) varyByEncoding(head);
    if (source.cache_status !== undefined) head.push('Cache-Status', source.cache_status.text);
    if (source.born_ms !== undefined) head.push('Age', '');
    head.push('X-Corr-ID', '');
    return head;
  }

  #exchange(req: IncomingMessage, res: ServerResponse, arrival: Arrival): Exchange {
    const { admission, host, sweeper } = this.#init;
    const { connection, corr_id, ip, start_ms } = arrival;
    const permit = new InflightPermit(admission, arrival.address, true);
    sweeper.watch(connection);
    const exchange = new Exchange(host, req, res, connection, corr_id, ip, start_ms, this.#route.metrics, permit);
    if (this.#init.cors !== undefined) exchange.cors_lines = this.#init.cors.linesFor(req.headers.origin);
    return exchange;
  }
}

/** The number of names and values at the end of a head that differ between answers. */
function tailOf({ born_ms, cache_status }: RamSource): number {
  return 2 + (born_ms === undefined ? 0 : 2) + (cache_status?.expires_ms === undefined ? 0 : 2);
}

function updateTail(head: string[], { born_ms, cache_status }: RamSource, corr_id: string): void {
  let at = head.length - 1;
  head[at] = corr_id;
  if (born_ms !== undefined) head[(at -= 2)] = ageNow(born_ms);
  if (cache_status?.expires_ms !== undefined) head[at - 2] = cacheStatusNow(cache_status);
}
