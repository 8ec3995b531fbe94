/**
 * One request on its way to an upstream, and the answer on its way back.
 *
 * Contract, bound and cancellation: those of `reverse-proxy.ts`. A GET or HEAD without a body is sent once more if a
 * kept-alive connection turns out to be closed.
 */
import { request } from '@ron/kernel/http';
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage, RequestOptions, ServerResponse } from 'node:http';
import { onAbort, RonError, sched } from '@ron/kernel';
import type { Parked, Timer } from '@ron/kernel';
import { watchFraming } from '../answer/cut-answer.ts';
import { endToEnd } from '@ron/http';

export interface ForwardLimits {
  /** Until the upstream has accepted the connection. Default 1 s. */
  readonly connect_ms: number;
  /** From the end of the request to the upstream's headers. Default 10 s. */
  readonly head_ms: number;
  /** Without a byte read or sent by the upstream. Default 30 s. */
  readonly stall_ms: number;
}

type Phase = 'connect' | 'send' | 'head' | 'body' | 'client';

export class Forwarding {
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #limits: ForwardLimits;
  readonly #signal: AbortSignal;
  readonly #not_returned: ReadonlySet<string>;
  readonly #onHead: ((status: number, headers: IncomingHttpHeaders) => void) | undefined;
  #outgoing: ClientRequest | undefined;
  #waiter: Parked<unknown> | undefined;
  #failure: unknown;
  #timer: Timer | undefined;
  #phase: Phase = 'connect';
  #since_ms = 0;
  #taken_bytes = 0;

  /** `signal` aborts when the client leaves. `not_returned`: headers of the upstream that are not forwarded. */
  constructor(
    req: IncomingMessage,
    res: ServerResponse,
    limits: ForwardLimits,
    signal: AbortSignal,
    not_returned: ReadonlySet<string>,
    onHead?: (status: number, headers: IncomingHttpHeaders) => void,
  ) {
    this.#req = req;
    this.#res = res;
    this.#limits = limits;
    this.#signal = signal;
    this.#not_returned = not_returned;
    this.#onHead = onHead;
  }

  /** Resolves when the answer has been written. Rejects when it cannot be completed. */
  async run(options: RequestOptions): Promise<void> {
    using _ = onAbort(this.#signal, (reason) => this.fail(reason));
    try {
      this.#signal.throwIfAborted();
      this.#arm();
      const answer = await this.#send(options);
      await this.#relay(answer);
    } finally {
      this.#timer?.cancel();
      this.#timer = undefined;
      this.#req.unpipe();
      this.#outgoing?.destroy();
      // The rest of the body is discarded, so the answer closes the connection.
      this.#req.resume();
    }
  }

  async #send(options: RequestOptions): Promise<IncomingMessage> {
    const { headers, method } = this.#req;
    const hasBody = headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
    const mayRepeat = (method === 'GET' || method === 'HEAD') && !hasBody;
    try {
      return await this.#attempt(options);
    } catch (error) {
      if (!mayRepeat || this.#failure !== undefined || this.#outgoing?.reusedSocket !== true) throw error;
      return this.#attempt({ ...options, agent: false });
    }
  }

  /** Sends the request and waits for the headers of the upstream. The body may still be sent after that. */
  #attempt(options: RequestOptions): Promise<IncomingMessage> {
    this.#enter('connect');
    const outgoing = request({ ...options, setHost: false });
    this.#outgoing = outgoing;
    outgoing.on('socket', (socket) => {
      if (!socket.connecting) this.#enter('send');
      else socket.once('connect', () => this.#enter('send'));
    });
    outgoing.on('finish', () => {
      if (this.#phase === 'connect' || this.#phase === 'send') this.#enter('head');
    });
    const answered = this.#wait<IncomingMessage>((parked) => {
      outgoing.on('response', parked.wake);
      outgoing.on('error', (cause) => parked.fail(brokenOff(cause)));
      // `Upgrade` is not forwarded, so the upstream must not switch protocols.
      outgoing.on('upgrade', (_answer, socket) => {
        socket.destroy();
        parked.fail(invalid('the upstream switched protocols'));
      });
      outgoing.on('information', ({ statusCode }) => {
        if (statusCode === 101) parked.fail(invalid('the upstream switched protocols'));
      });
    });
    this.#req.pipe(outgoing);
    return answered;
  }

  async #relay(answer: IncomingMessage): Promise<void> {
    const res = this.#res;
    const { method } = this.#req;
    answer.on('error', () => undefined); // The iterator reports it.
    const status = answer.statusCode!;
    const hasBody = method !== 'HEAD' && status !== 204 && status !== 304;
    checkHead(answer, hasBody);
    this.#onHead?.(status, answer.headers);
    const headers = endToEnd(answer.rawHeaders, this.#not_returned);
    for (const [name, values] of grouped(headers)) {
      // A 204 has no length (RFC 9110, 8.6).
      if (name === 'content-length' && status === 204) continue;
      // The headers of this listener take precedence.
      if (!res.hasHeader(name)) res.setHeader(name, values.length === 1 ? values[0]! : values);
    }
    if (!this.#req.complete) res.setHeader('Connection', 'close');
    res.writeHead(status);
    if (hasBody && !res.hasHeader('content-length')) watchFraming(res);
    res.flushHeaders();
    await this.#relayBody(answer);
    res.end();
  }

  async #relayBody(answer: IncomingMessage): Promise<void> {
    const res = this.#res;
    const pieces = answer[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    for (;;) {
      this.#enter('body');
      const { value, done } = await this.#wait<IteratorResult<Buffer>>((parked) => {
        pieces.next().then(parked.wake, (cause: unknown) => parked.fail(brokenOff(cause)));
      });
      if (done === true) break;
      this.#enter('client');
      if (!res.write(value)) await this.#wait<void>((parked) => res.once('drain', () => parked.wake()));
    }
  }

  #wait<T>(begin: (parked: Parked<T>) => void): Promise<T> {
    const parked = sched.park<T>(`proxy.${this.#phase}`);
    this.#waiter = parked as Parked<unknown>;
    if (this.#failure === undefined) begin(parked);
    else parked.fail(this.#failure);
    return parked.promise;
  }

  /** Ends it for an external reason. The first one counts. */
  fail(error: unknown): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#waiter?.fail(error);
  }

  #enter(phase: Phase): void {
    this.#phase = phase;
    this.#since_ms = sched.now_ms();
  }

  /** Whether the listener waits for the rest of the body. A body that failed will never be complete. */
  #clientOwes(): boolean {
    return !this.#req.complete && !this.#req.destroyed && this.#req.readableLength === 0;
  }

  #arm(): void {
    const { connect_ms, head_ms, stall_ms } = this.#limits;
    this.#timer = sched.timer(Math.min(connect_ms, head_ms, stall_ms) / 4, this.#check, 'proxy.check');
  }

  readonly #check = (): void => {
    if (this.#timer === undefined) return;
    const { connect_ms, head_ms, stall_ms } = this.#limits;
    const taken_bytes = this.#outgoing?.socket?.bytesWritten ?? 0;
    const isTaking = taken_bytes !== this.#taken_bytes || (this.#outgoing?.writableLength === 0 && this.#clientOwes());
    this.#taken_bytes = taken_bytes;
    // The listener limits a client that is slow to send.
    if (this.#phase === 'send' && isTaking) this.#since_ms = sched.now_ms();
    // The listener limits a client that is slow to read.
    const limit_ms = { connect: connect_ms, send: stall_ms, head: head_ms, body: stall_ms, client: Infinity }[
      this.#phase
    ];
    if (sched.now_ms() - this.#since_ms >= limit_ms)
      this.fail(new RonError('timeout', 'the upstream did not answer in time', { op: 'proxy' }));
    this.#arm();
  };
}

/** Throws if the head of an answer cannot be forwarded. */
function checkHead({ statusCode, headers }: IncomingMessage, hasBody: boolean): void {
  if (statusCode! < 200 || statusCode! > 599) throw invalid('the upstream sent an invalid status');
  if (!hasBody) return;
  const coding = headers['transfer-encoding'];
  // Only chunks are decoded here: another coding, forwarded without its name, would be read as content.
  if (coding !== undefined && coding.trim().toLowerCase() !== 'chunked')
    throw invalid('the upstream sent an unsupported transfer coding');
  if (coding === undefined && headers['content-length'] === undefined)
    throw invalid('the upstream sent a body whose truncation cannot be detected');
}

function invalid(message: string): RonError {
  return new RonError('bad_gateway', message);
}

function brokenOff(cause: unknown): RonError {
  return new RonError('bad_gateway', 'the upstream closed the connection', { cause });
}

function grouped(flat: readonly string[]): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (let i = 0; i < flat.length; i += 2) {
    const name = flat[i]!.toLowerCase();
    const values = groups.get(name);
    if (values === undefined) groups.set(name, [flat[i + 1]!]);
    else values.push(flat[i + 1]!);
  }
  return groups;
}
