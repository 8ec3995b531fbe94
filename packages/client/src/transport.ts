/**
 * Requests to one service, with its capability, a deadline and retries.
 *
 * Contract: the capability is sent only to the origin of the service; redirects are not followed. A status of 400 or above is
 * thrown as an `AnswerError`, a failed connection as `unreachable`, an abort with its own reason. Only idempotent work is
 * retried, after the backoff plus `Retry-After`.
 * Bound: `deadline_ms` for all tries of a request; a transfer continues while it makes progress within `stall_ms`.
 * Cancellation: by the signal of each call and of the client; both end the request and the wait before the next try.
 */
import { Deadline, idempotent, jittered, retry, RonError, sched, type RetryPolicy } from '@ron/kernel/core';
import { answerError } from './answer-error.ts';
import type { Answer, Fetch, FetchInit } from './answer.ts';

export interface TransportInit {
  /** The URL of the service, such as `http://127.0.0.1:7101`. */
  url: string | URL;
  /** The URL in messages, if `fetch` connects elsewhere. Default `url`. */
  shown_url?: string;
  /** The token to send with every request. Default none. */
  capability?: string | undefined;
  /** Gives the token of each try, narrowed to it. Called with the body if it is in memory. Default `capability`. */
  authorize?: ((request: AuthorizedRequest) => string | undefined) | undefined;
  /** Default the platform's. */
  fetch?: Fetch;
  /** Aborts all operations of this client. Default never. */
  signal?: AbortSignal;
  /** For one request, all its tries and waits included, besides the time its body takes. Default 30 000. */
  deadline_ms?: number;
  /** For a new connection, if `fetch` can limit it, as `nodeFetch` does. Default 10 000. */
  connect_ms?: number;
  /** The longest stall before a transfer is aborted, and resumed if possible. Default 15 000. */
  stall_ms?: number;
  /** The bytes of an object that the service must send within `stall_ms`, if so many are left. Default 1. */
  stall_bytes?: number;
  /** The retry policy of requests. Default 3 tries, 100 to 200 ms apart, doubling. */
  policy?: RetryPolicy;
  /** The retry policy of transfers; the count restarts after progress. Default 7 tries, up to 5 s apart. */
  resume_policy?: RetryPolicy;
}

/** A request that is about to be sent. */
export interface AuthorizedRequest {
  /** The whole body; empty if there is none; undefined if it is streamed. */
  readonly body: Uint8Array | undefined;
}

export const TRANSPORT_DEFAULTS = {
  deadline_ms: 30_000,
  connect_ms: 10_000,
  stall_ms: 15_000,
  stall_bytes: 1,
  policy: jittered({ tries_max: 3, from_ms: 100, to_ms: 200, factor: 2, cap_ms: 2000 }),
  resume_policy: jittered({ tries_max: 7, from_ms: 100, to_ms: 200, factor: 2, cap_ms: 5000 }),
} as const;

/** A slower link counts as broken. */
const BODY_BYTES_PER_S_MIN = 65_536;
const NO_BODY = new Uint8Array(0);

export interface SendInit {
  method: string;
  headers?: Readonly<Record<string, string>>;
  body?: FetchInit['body'];
  signal: AbortSignal;
}

/** `token68` of RFC 9110. */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;

export interface CallInit {
  signal?: AbortSignal | undefined;
  /** The length of the request body. Default 0. */
  body_bytes?: number;
  /** How long the service may wait before it answers. Default 0. */
  wait_ms?: number;
  policy?: RetryPolicy;
}

export class Transport {
  /** Ends with a slash. */
  readonly base: URL;
  readonly shown_url: string;
  readonly stall_ms: number;
  readonly stall_bytes: number;
  readonly policy: RetryPolicy;
  readonly resume_policy: RetryPolicy;
  readonly #fetch: Fetch;
  readonly deadline_ms: number;
  readonly #connect_ms: number;
  readonly #signal: AbortSignal | undefined;
  readonly #authorize: (request: AuthorizedRequest) => string | undefined;

  constructor(init: TransportInit) {
    this.base = new URL(init.url);
    if (!this.base.pathname.endsWith('/')) this.base.pathname += '/';
    this.stall_ms = init.stall_ms ?? TRANSPORT_DEFAULTS.stall_ms;
    this.stall_bytes = init.stall_bytes ?? TRANSPORT_DEFAULTS.stall_bytes;
    this.policy = init.policy ?? TRANSPORT_DEFAULTS.policy;
    this.resume_policy = init.resume_policy ?? TRANSPORT_DEFAULTS.resume_policy;
    this.#fetch = init.fetch ?? globalThis.fetch.bind(globalThis);
    this.deadline_ms = init.deadline_ms ?? TRANSPORT_DEFAULTS.deadline_ms;
    this.#connect_ms = init.connect_ms ?? TRANSPORT_DEFAULTS.connect_ms;
    this.#signal = init.signal;
    this.#authorize = init.authorize ?? (() => init.capability);
    this.shown_url = init.shown_url ?? this.base.origin;
  }

  /** Whether a stream is sent while it is read, at the pace of the service. */
  get sendsStreams(): boolean {
    return this.#fetch.sendsStreams ?? false;
  }

  /** The signal of an operation: the caller's and the client's. */
  signalFor(signal: AbortSignal | undefined): AbortSignal {
    const signals = [signal, this.#signal].filter((each) => each !== undefined);
    return signals.length === 1 ? signals[0]! : AbortSignal.any(signals);
  }

  /** One try of one request. `path` is relative to the service, or a URL that it gave. */
  async send(op: string, path: string, init: SendInit): Promise<Answer> {
    const url = new URL(path, this.base);
    if (url.origin !== this.base.origin) {
      throw new RonError('integrity', `the server referred to another origin: ${url.origin}`, { op });
    }
    const response = await this.#request(op, url, init);
    if (response.status < 400) return response;
    throw await answerError(response, op);
  }

  /** Runs idempotent work until it succeeds or the deadline passes. */
  async call<T>(op: string, work: (signal: AbortSignal) => Promise<T>, init: CallInit = {}): Promise<T> {
    const { wait_ms = 0, body_bytes = 0 } = init;
    const budget_ms = this.deadline_ms + wait_ms + (body_bytes / BODY_BYTES_PER_S_MIN) * 1000;
    using deadline = Deadline.after(op, budget_ms, { signal: this.signalFor(init.signal) });
    using _ = keepAlive();
    return await retry(idempotent(op, work), { policy: init.policy ?? this.policy, deadline });
  }

  async #request(op: string, url: URL, init: SendInit): Promise<Answer> {
    const { method, body, signal } = init;
    const token = this.#authorize({ body: body instanceof ReadableStream ? undefined : (body ?? NO_BODY) });
    if (token !== undefined && !TOKEN.test(token)) {
      // The error of `fetch` would quote it.
      throw new RonError('validation', 'the capability is not a token: it has characters that a header cannot have', {
        op,
      });
    }
    const headers = { ...init.headers, ...(token !== undefined && { Authorization: `Bearer ${token}` }) };
    try {
      return await this.#fetch(url, {
        method,
        headers,
        signal,
        redirect: 'error',
        cache: 'no-store',
        credentials: 'omit',
        connect_ms: this.#connect_ms,
        ...(body !== undefined && { body }),
        ...(body instanceof ReadableStream && { duplex: 'half' }),
      });
    } catch (error) {
      throw unreachable(error, op, this.shown_url, signal);
    }
  }
}

/** The error for a failed fetch or an interrupted body. */
export function unreachable(error: unknown, op: string, shown_url: string, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof RonError) return error;
  const system_code = systemCode(error);
  return new RonError('unreachable', `${shown_url} cannot be reached, or broke off (${system_code})`, {
    op,
    cause: error,
    details: { system_code },
  });
}

function systemCode(error: unknown): string {
  let message = 'no reason given';
  for (let at = error, depth = 0; at instanceof Error && depth < 4; at = at.cause, depth++) {
    if ('code' in at && typeof at.code === 'string') return at.code;
    message = at.message;
  }
  return message;
}

/** Keeps the process alive while an operation only waits for one of our timers. */
export function keepAlive(): Disposable {
  const timer = sched.timer(Infinity, () => undefined, 'client.alive', { keepAlive: true });
  return { [Symbol.dispose]: () => timer.cancel() };
}
