/**
 * Requests to one service: with the capability, within a deadline, and again when that is safe and may help.
 *
 * Promise: the capability goes to the service's own origin and nowhere else; redirects are not followed. An answer of 400
 * or above is thrown as an `AnswerError`, a connection that fails as `unreachable`, the caller's abort as its own reason.
 * Only work stated to be idempotent is repeated, after the backoff plus what `Retry-After` asks for.
 * Bound: `deadline_ms` for all tries of a request; a transfer lives as long as it makes progress within `stall_ms`.
 * Cancellation: by the client's signal and by each call's; both end the request and the wait before the next try.
 */
import { Deadline, idempotent, jittered, retry, RonError, sched, type RetryPolicy } from '@ron/kernel/core';
import { answerError } from './answer-error.ts';
import type { Answer, Fetch, FetchInit } from './answer.ts';

export interface TransportInit {
  /** Where the service is: `http://127.0.0.1:7101`. */
  url: string | URL;
  /** The token to send with every request. Default none. */
  capability?: string | undefined;
  /** Default the platform's. */
  fetch?: Fetch;
  /** Ends everything that this client does. Default never. */
  signal?: AbortSignal;
  /** For one request, all its tries and waits included, besides the time its body takes. Default 30 000. */
  deadline_ms?: number;
  /** Longest that a transfer may stand still before it is broken off, and resumed if it can be. Default 15 000. */
  stall_ms?: number;
  /** How a request is repeated. Default 3 tries, 100 to 200 ms apart, doubling. */
  policy?: RetryPolicy;
  /** How a transfer that made progress is resumed; counted anew after each progress. Default 7 tries, up to 5 s apart. */
  resume_policy?: RetryPolicy;
}

export const TRANSPORT_DEFAULTS = {
  deadline_ms: 30_000,
  stall_ms: 15_000,
  policy: jittered({ tries_max: 3, from_ms: 100, to_ms: 200, factor: 2, cap_ms: 2000 }),
  resume_policy: jittered({ tries_max: 7, from_ms: 100, to_ms: 200, factor: 2, cap_ms: 5000 }),
} as const;

/** A link that is slower than this is taken for broken. */
const BODY_BYTES_PER_S_MIN = 65_536;

export interface SendInit {
  method: string;
  headers?: Readonly<Record<string, string>>;
  body?: FetchInit['body'];
  signal: AbortSignal;
}

export interface CallInit {
  signal?: AbortSignal | undefined;
  /** How many bytes the request carries. Default 0. */
  body_bytes?: number;
  policy?: RetryPolicy;
}

export class Transport {
  /** Ends with a slash. */
  readonly base: URL;
  readonly stall_ms: number;
  readonly policy: RetryPolicy;
  readonly resume_policy: RetryPolicy;
  readonly #fetch: Fetch;
  readonly deadline_ms: number;
  readonly #signal: AbortSignal | undefined;
  readonly #authorization: string | undefined;

  constructor(init: TransportInit) {
    this.base = new URL(init.url);
    if (!this.base.pathname.endsWith('/')) this.base.pathname += '/';
    this.stall_ms = init.stall_ms ?? TRANSPORT_DEFAULTS.stall_ms;
    this.policy = init.policy ?? TRANSPORT_DEFAULTS.policy;
    this.resume_policy = init.resume_policy ?? TRANSPORT_DEFAULTS.resume_policy;
    this.#fetch = init.fetch ?? globalThis.fetch.bind(globalThis);
    this.deadline_ms = init.deadline_ms ?? TRANSPORT_DEFAULTS.deadline_ms;
    this.#signal = init.signal;
    this.#authorization = init.capability === undefined ? undefined : `Bearer ${init.capability}`;
  }

  /** Whether a stream goes out while it is read, in the service's own time. */
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
      throw new RonError('integrity', `the server sent us to ${url.origin}, which is not where it is`, { op });
    }
    const response = await this.#request(op, url, init);
    if (response.status < 400) return response;
    throw await answerError(response, op);
  }

  /** Work that may be done twice, tried until it is done or the deadline is over. */
  async call<T>(op: string, work: (signal: AbortSignal) => Promise<T>, init: CallInit = {}): Promise<T> {
    const budget_ms = this.deadline_ms + ((init.body_bytes ?? 0) / BODY_BYTES_PER_S_MIN) * 1000;
    using deadline = Deadline.after(op, budget_ms, { signal: this.signalFor(init.signal) });
    using _ = keepAlive();
    return await retry(idempotent(op, work), { policy: init.policy ?? this.policy, deadline });
  }

  async #request(op: string, url: URL, init: SendInit): Promise<Answer> {
    const { method, body, signal } = init;
    const headers = {
      ...init.headers,
      ...(this.#authorization !== undefined && { Authorization: this.#authorization }),
    };
    try {
      return await this.#fetch(url, {
        method,
        headers,
        signal,
        redirect: 'error',
        cache: 'no-store',
        credentials: 'omit',
        ...(body !== undefined && { body }),
        ...(body instanceof ReadableStream && { duplex: 'half' }),
      });
    } catch (error) {
      throw unreachable(error, op, this.base, signal);
    }
  }
}

/** What a failed fetch, or a body that broke off, is to the caller. */
export function unreachable(error: unknown, op: string, base: URL, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof RonError) return error;
  const system_code = systemCode(error);
  return new RonError('unreachable', `${base.origin} cannot be reached, or broke off (${system_code})`, {
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

/** Keeps the process alive while an operation waits for nothing but one of our timers. */
export function keepAlive(): Disposable {
  const timer = sched.timer(Infinity, () => undefined, 'client.alive', { keepAlive: true });
  return { [Symbol.dispose]: () => timer.cancel() };
}
