/**
 * One request that passed the guards: its parts, and the resources that it holds.
 *
 * Contract: the in-flight permit, the deadline and the entry at its connection are released exactly once, when the
 * answer is sent or the connection is lost. A handler that is still running then keeps the permit until it ends, and the
 * drain waits for it. While the request is queued, parked, or has a client that does not read, it holds no in-flight
 * permit: the queue, the slots of parked requests or the share of its address bounds it.
 * Cancellation: if the client leaves first, the deadline is cancelled, so that queue and handler stop.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Deadline, onAbort, RonError, sched } from '@ron/kernel';
import type { AccessFacts, AccessGrant, AccessVerdict } from '@ron/proto';
import { insist } from '../guards/access.ts';
import type { Body, BufferedBody } from '../body/body.ts';
import type { Connection, InflightRequest } from '../connection/connection.ts';
import type { RouteMetrics } from '../ingress-metrics.ts';
import type { InflightPermit } from '../guards/inflight-permit.ts';
import type { PreparedRoute } from '../table/prepared-route.ts';
import { RequestHead } from './request-head.ts';
import type { RouteContext } from '../table/routes.ts';
import type { SlotLimit } from '../guards/slot-limit.ts';

/** The part of the listener that exchanges use. One object for all exchanges. */
export interface ExchangeHost {
  /** Exchanges whose handler still runs after their connection closed. */
  orphaned: number;
  readonly parked: SlotLimit;
  /** Aborts when the drain begins. */
  readonly draining: AbortSignal;
  readonly onExpire: (op: string) => void;
  /** Throws 429. */
  chargeRate(): void;
  readStalled(exchange: Exchange): void;
  fail(exchange: Exchange, error: unknown): void;
  /** After the last byte, or after the client left (`status` 0). */
  finished(exchange: Exchange, status: number, seconds: number): void;
}

const kExchange = Symbol('ron.exchange');

interface Carrier extends IncomingMessage {
  [kExchange]?: Exchange;
}

const NO_LINES: readonly string[] = Object.freeze([]);
const NO_FIELDS: Readonly<Record<string, string>> = Object.freeze({});

export class Exchange extends RequestHead implements InflightRequest, RouteContext {
  readonly res: ServerResponse;
  readonly connection: Connection;
  readonly corr_id: string;
  readonly ip: string;
  readonly start_ms: number;
  readonly #host: ExchangeHost;
  metrics: RouteMetrics;
  prepared: PreparedRoute | undefined = undefined;
  budget_ms = 0;
  /** Headers of CORS, appended to every answer: names and values. */
  cors_lines: readonly string[] = NO_LINES;
  params: Readonly<Record<string, string>> = NO_FIELDS;
  query: Readonly<Record<string, string>> = NO_FIELDS;
  body: unknown = undefined;
  body_bytes: Uint8Array | undefined = undefined;
  grant: AccessGrant | undefined = undefined;
  /** The capability check that started before routing. */
  verdict: Promise<AccessVerdict> | undefined = undefined;
  /** The body, if it is streamed, encoded, or checked by the capability. */
  incoming: Body | undefined = undefined;
  /** The body, if it is buffered without decoding. */
  buffered: BufferedBody<Exchange> | undefined = undefined;
  /** The deadline of a buffered body. */
  body_due_ms = Infinity;
  /** Its answer is a problem. */
  has_failed = false;
  /** A proxy reads the body. */
  is_forwarded = false;
  /** The client waits for `100 Continue` before it sends its body. */
  expects_continue = false;
  #deadline: Deadline | undefined = undefined;
  #gone: AbortController | undefined = undefined;
  readonly #permit: InflightPermit;
  /** The permit was released for good. */
  #leftPermit = false;
  /** The answer has begun. */
  #began = false;
  #over = false;
  /** Running work of this request: its handler, the source of a stream. */
  #works = 0;
  /** Pending calls of `park`. */
  #parks = 0;

  constructor(
    host: ExchangeHost,
    req: IncomingMessage,
    res: ServerResponse,
    connection: Connection,
    corr_id: string,
    ip: string,
    start_ms: number,
    metrics: RouteMetrics,
    permit: InflightPermit,
  ) {
    super(req);
    this.#host = host;
    this.res = res;
    this.connection = connection;
    this.corr_id = corr_id;
    this.ip = ip;
    this.start_ms = start_ms;
    this.metrics = metrics;
    this.#permit = permit;
    (req as Carrier)[kExchange] = this;
    res.on('close', onClose);
    connection.add(this);
  }

  /** The exchange of a request; undefined if it has not passed the guards. */
  static of(req: IncomingMessage): Exchange | undefined {
    return (req as Carrier)[kExchange];
  }

  get over(): boolean {
    return this.#over;
  }

  /**
   * Created on first use. Its time starts once the headers are complete and all earlier requests of the connection are
   * answered. Once the answer has begun, it has no time limit and ends with `gone`.
   */
  get deadline(): Deadline {
    if (this.#deadline === undefined) {
      const op = this.prepared?.op ?? 'handler';
      const left_ms = this.budget_ms - (sched.now_ms() - this.start_ms);
      this.#deadline = this.#began
        ? Deadline.unlimited(op, { signal: this.gone })
        : Deadline.after(op, left_ms, { onExpire: this.#host.onExpire });
      if (this.#over) this.#deadline.cancel(clientLeft());
    }
    return this.#deadline;
  }

  /** Aborts when the client leaves or the answer ends before its source, but not when the budget ends: for streams. */
  get gone(): AbortSignal {
    if (this.#gone === undefined) {
      this.#gone = new AbortController();
      if (this.#over) this.#gone.abort(clientLeft());
    }
    return this.#gone.signal;
  }

  /** The answer ends before its source does. */
  endSource(reason: unknown): void {
    this.#gone?.abort(reason);
  }

  /** Like `gone`, but until the head is sent it also aborts when the budget ends. */
  goneOrLate(): AbortSignal {
    const { signal } = this.deadline;
    const { gone } = this;
    onAbort(signal, (reason) => {
      if (!this.res.headersSent) this.#gone?.abort(reason);
    });
    return gone;
  }

  /** The answer has begun: from now on progress counts, not the budget. */
  answerBegan(): void {
    if (this.#began) return;
    this.#began = true;
    this.#deadline?.[Symbol.dispose]();
    this.#deadline = undefined;
  }

  /** It holds no in-flight permit from now on: another limit bounds it. */
  leavePlace(): void {
    this.#leftPermit = true;
    this.#permit.release();
  }

  #retakePlace(): void {
    if (this.#parks === 0 && !this.#leftPermit) this.#permit.reacquire();
  }

  /** Work for this request runs until `work` settles, even if the client has its answer or has left. */
  runsUntil(work: Promise<unknown>): void {
    this.#works += 1;
    if (this.#works === 1 && this.#over) this.#host.orphaned += 1;
    const onEnd = (): void => {
      this.#works -= 1;
      if (this.#works > 0 || !this.#over) return;
      this.#host.orphaned -= 1;
      this.#permit.end();
    };
    work.then(onEnd, onEnd);
  }

  get draining(): AbortSignal {
    return this.#host.draining;
  }

  chargeRate(): void {
    this.#host.chargeRate();
  }

  async park<T>(wait: Promise<T> | (() => Promise<T>)): Promise<T> {
    const { parked } = this.#host;
    const { address } = this.#permit;
    const refusal = this.#parkRefusal();
    if (refusal !== undefined) {
      // The outcome is discarded: a rejection must not be unhandled.
      if (wait instanceof Promise) wait.catch(() => undefined);
      throw refusal;
    }
    this.#parks += 1;
    this.#permit.release();
    try {
      return await this.deadline.within(wait instanceof Promise ? wait : wait());
    } finally {
      this.#parks -= 1;
      parked.give(address);
      this.#retakePlace();
    }
  }

  #parkRefusal(): RonError | undefined {
    if (this.prepared?.queue !== undefined) {
      return new RonError(
        'internal',
        `${this.prepared.name}: a handler in a worker cannot park, because it would block the worker`,
      );
    }
    if (this.#host.parked.tryTake(this.#permit.address)) return undefined;
    return new RonError('busy', 'too many requests are parked');
  }

  actsOn(facts: AccessFacts): void {
    if (this.grant === undefined) return;
    insist(this.grant.phase2.facts(facts));
    insist(this.grant.phase2.settle());
  }

  get stream(): AsyncIterable<Uint8Array> {
    if (this.incoming !== undefined) return this.incoming;
    if (this.body_bytes === undefined) throw new RonError('internal', 'this route has no streamed body');
    return onePiece(this.body_bytes);
  }

  get permit(): InflightPermit {
    return this.#permit;
  }

  clientStalled(isStalled: boolean): void {
    if (isStalled) this.#permit.stall();
    else this.#permit.unstall();
  }

  bodyOverdue(now_ms: number): boolean {
    return now_ms >= this.body_due_ms;
  }

  wantsBytes(): boolean {
    // A buffered body has a total timeout, which is stricter.
    if (this.body_due_ms !== Infinity) return false;
    if (this.incoming !== undefined) return this.incoming.waiting;
    if (this.buffered !== undefined) return this.buffered.waiting;
    // Bytes that the upstream has not read fill the buffer: an empty buffer means that the client sends nothing.
    return this.is_forwarded && !this.req.complete && this.req.readableLength === 0;
  }

  /** A handler waits for bytes of the body that the client has not sent. */
  get awaits_body(): boolean {
    return !this.is_forwarded && this.wantsBytes();
  }

  readStalled(): void {
    this.body_due_ms = Infinity;
    this.#host.readStalled(this);
  }

  bodyBroken(error: RonError): boolean {
    if (this.req.complete) return false;
    if (!this.failBody(error)) this.#host.fail(this, error);
    return true;
  }

  /** Fails the reader of the body. False if there is none. */
  failBody(error: RonError): boolean {
    const reader =
      this.buffered?.waiting === true ? this.buffered : this.incoming?.waiting === true ? this.incoming : undefined;
    reader?.fail(error);
    return reader !== undefined;
  }

  connectionLost(): void {
    this.end();
  }

  /** Releases everything. */
  end(): void {
    if (this.#over) return;
    this.#over = true;
    this.connection.remove(this);
    if (this.#works === 0) this.#permit.end();
    else this.#host.orphaned += 1;
    const left = !this.res.writableFinished;
    if (left) {
      this.#deadline?.cancel(clientLeft());
      this.#gone?.abort(clientLeft());
    } else this.#deadline?.[Symbol.dispose]();
    // A handler that waits for the body would hold its permit and its worker until the client sends more, or forever.
    const error = left
      ? clientLeft()
      : new RonError('canceled', 'the request was answered before its body was complete');
    this.incoming?.fail(error);
    this.buffered?.fail(error);
    const seconds = (sched.now_ms() - this.start_ms) / 1000;
    this.#host.finished(this, left ? 0 : this.res.statusCode, seconds);
  }
}

function onClose(this: ServerResponse): void {
  Exchange.of(this.req)?.end();
}

async function* onePiece(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  if (bytes.length > 0) yield bytes;
}

function clientLeft(): RonError {
  return new RonError('canceled', 'the client disconnected');
}
