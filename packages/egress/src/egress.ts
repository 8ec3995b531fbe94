/**
 * An HTTP client for servers that are not trusted.
 *
 * Contract: `exchange` sends a request and passes the answer to `use`, whose result it returns; the connection is in use
 * only until then. Addresses are checked at every dial and again on the connected socket. Redirects are answers. A
 * body is complete or an error. With `retry`, idempotent requests are tried again by that policy, 503 and 504 are errors
 * (`not_ready`, `timeout`, op `egress_status`) whose `Retry-After` is waited out, and `use` may run once per try.
 * Errors: `validation` and `reject_policy` (not allowed), `busy`, `breaker_open`, `timeout` (op names the stage),
 * `unreachable` (dns, connection), `bad_gateway` (invalid certificate or answer), `payload_too_large`, `decompress_cap`,
 * `closed`.
 * Bound: `EgressLimits`. Overflow: `busy`. Cancellation: by the caller's deadline, and by `close`.
 *
 *   await using egress = new Egress({ name: 'live_fill', networks: [] });
 *   const size = await egress.exchange({ url }, { deadline }, async (answer) => {
 *     return answer.status === 200 ? (await answer.body.whole()).length : 0;
 *   });
 */
import {
  Deadline,
  idempotent,
  isRonError,
  isTransient,
  retry,
  RetryBudget,
  RonError,
  sched,
  type Breaker,
  type BreakerInit,
  type RetryPolicy,
  type Verdict,
} from '@ron/kernel';
import { AddressPolicy } from './address/address-policy.ts';
import { TargetRules, type Scheme, type Target } from './address/target.ts';
import { Breakers } from './breakers.ts';
import { EgressAgent } from './connect/agent.ts';
import { Dialer, type Connect } from './connect/dial.ts';
import { Resolver, systemLookup, type Lookup } from './connect/resolve.ts';
import { Slots } from './connect/slots.ts';
import { Trust, type TrustInit } from './connect/trust.ts';
import { retryAfter_ms } from './exchange/retry-after.ts';
import { headersOf, isIdempotent, type EgressRequest } from './exchange/request.ts';
import { send, StaleConnection, type Answer, type SendInit } from './exchange/send.ts';
import { EGRESS_LIMITS, type EgressLimits } from './limits.ts';
import { noCounts, outcomeOf, verdictOf, type Outcome, type OutcomeCounts } from './outcome.ts';

export interface EgressInit extends TrustInit {
  /** A short fixed word: the `op` of retries. */
  readonly name: string;
  /** Default https only. Plain HTTP goes only to `networks`. */
  readonly schemes?: readonly Scheme[];
  /** Default 443. `any` for a caller that checks whole origins against a list of its own. */
  readonly ports?: readonly number[] | 'any';
  /** Networks with non-public addresses that may be dialled, such as `10.0.0.0/8`. Default none. */
  readonly networks?: readonly string[];
  readonly limits?: Partial<EgressLimits>;
  /**
   * Which connections serve more than one request. Default `opened`: those to `networks`. With `all`, a server that sends
   * more answers than requests can have one of them read as the answer to a later request to the same origin.
   */
  readonly reuse?: 'opened' | 'all';
  /** `none` for a caller that has its own. Default: opens when more than half of at least 5 calls in 10 s failed. */
  readonly breaker?: Partial<BreakerInit> | 'none';
  /** Shared by all callers. Default: an own one with the kernel's defaults. */
  readonly retry_budget?: RetryBudget;
  /** Called with the outcome of each try, and with its error if it failed. Must not throw. */
  readonly onOutcome?: (outcome: Outcome, error?: unknown) => void;
  /** Called for each retry. Must not throw. */
  readonly onRetry?: (op: string, result: 'ok' | 'failed') => void;
  /** Default: the system's resolver. */
  readonly lookup?: Lookup;
  /** Default `net.connect`. */
  readonly connect?: Connect;
}

export interface ExchangeInit {
  /** Bounds all tries and the reading of the body, together with `total_ms`. */
  readonly deadline: Deadline;
  /** Default: one try. Only for idempotent requests. */
  readonly retry?: RetryPolicy;
}

export type Use<T> = (answer: Answer, signal: AbortSignal) => Promise<T>;

export interface WholeAnswer extends Pick<Answer, 'status' | 'headers' | 'peer'> {
  readonly body: Uint8Array;
}

const BREAKER: BreakerInit = {
  error_window_ms: 10_000,
  trip_threshold: 0.5,
  calls_min: 5,
  cooldown_ms: 2000,
  half_open_probes: 1,
};

function breakerInit(init: EgressInit['breaker']): BreakerInit {
  return init === 'none' ? { ...BREAKER, calls_min: Number.MAX_SAFE_INTEGER } : { ...BREAKER, ...init };
}

export class Egress implements AsyncDisposable {
  readonly #init: EgressInit;
  readonly #limits: EgressLimits;
  readonly #rules: TargetRules;
  readonly #dialer: Dialer;
  readonly #agent: EgressAgent;
  readonly #slots: Slots;
  readonly #breakers: Breakers;
  readonly #budget: RetryBudget;
  readonly #closing = new AbortController();
  /** Bounded: each holds or waits for a slot, or sleeps between two tries of a caller. */
  readonly #running = new Set<Promise<unknown>>();
  readonly #counts = noCounts();

  /** Throws `validation` for networks, CA or pins that cannot be read. */
  constructor(init: EgressInit) {
    const limits = { ...EGRESS_LIMITS, ...init.limits };
    this.#init = init;
    this.#limits = limits;
    this.#rules = new TargetRules({ schemes: init.schemes ?? ['https'], ports: init.ports ?? [443] });
    this.#dialer = new Dialer({
      policy: new AddressPolicy(init.networks ?? []),
      trust: new Trust(init),
      resolver: new Resolver(init.lookup ?? systemLookup, limits.lookups_max),
      limits,
      ...(init.connect === undefined ? {} : { connect: init.connect }),
    });
    this.#agent = new EgressAgent({
      dial: (target, total) => this.#dialer.dial(target, total),
      canKeep: (socket) => init.reuse === 'all' || this.#dialer.isOpened(socket),
      limits,
    });
    this.#slots = new Slots(limits);
    // Calls that hold or wait for a slot always find a breaker.
    const breakers_max = Math.max(limits.breakers_max, limits.sockets_max + limits.waiting_max + 1);
    this.#breakers = new Breakers(breakerInit(init.breaker), breakers_max);
    this.#budget = init.retry_budget ?? new RetryBudget();
  }

  /** Tries by outcome since the start. */
  get outcomes(): OutcomeCounts {
    return { ...this.#counts };
  }

  /** Connections: in use, idle, and requests that wait for one. */
  get connections(): { readonly used: number; readonly idle: number; readonly waiting: number } {
    return { used: this.#slots.used, idle: this.#agent.idle, waiting: this.#slots.waiting };
  }

  /** Origins whose circuit breaker is open. */
  get openOrigins(): readonly string[] {
    return this.#breakers.open;
  }

  async exchange<T>(request: EgressRequest, init: ExchangeInit, use: Use<T>): Promise<T> {
    if (this.#closing.signal.aborted) throw closedError();
    const run = this.#run(request, init, use);
    this.#running.add(run);
    try {
      return await run;
    } finally {
      this.#running.delete(run);
    }
  }

  /** The answer with its whole body in memory: at most `bytes_max` of the request. */
  whole(request: EgressRequest, init: ExchangeInit): Promise<WholeAnswer> {
    return this.exchange(request, init, async ({ status, headers, peer, body }) => {
      return { status, headers, peer, body: await body.whole() };
    });
  }

  /**
   * Closes all connections to an origin, such as one that a reload removed from an allow-list. Throws as `exchange`
   * does for an origin that cannot be connected to.
   */
  disconnect(origin: string): void {
    this.#agent.closeAll(this.#rules.parse(origin).origin);
  }

  /** Ends all exchanges with `closed` and closes all connections. */
  async close(): Promise<void> {
    this.#closing.abort(closedError());
    await Promise.allSettled(this.#running);
    this.#agent.destroy();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #run<T>(request: EgressRequest, init: ExchangeInit, use: Use<T>): Promise<T> {
    const { signal } = this.#closing;
    using total = Deadline.after('egress_total', this.#limits.total_ms, { parent: init.deadline, signal });
    const { retry: policy } = init;
    const attempt: Attempt<T> = { request, total, use, isRetried: policy !== undefined };
    if (policy === undefined) return await total.run(() => this.#try(attempt));
    if (!isIdempotent(request)) throw new RonError('internal', 'only idempotent requests are retried');
    const transient = policy.isTransient ?? isTransient;
    return await retry(
      idempotent(this.#init.name, () => this.#try(attempt)),
      {
        policy: { ...policy, isTransient: (error) => attempt.breaker?.state !== 'open' && transient(error) },
        deadline: total,
        budget: this.#budget,
        ...(this.#init.onRetry === undefined ? {} : { onRetry: this.#init.onRetry }),
      },
    );
  }

  /** One try, counted by its outcome. */
  async #try<T>(attempt: Attempt<T>): Promise<T> {
    const { request, total } = attempt;
    try {
      const target = this.#rules.parse(request.url);
      using call = this.#breakers.enter(target.origin);
      attempt.breaker = call.breaker;
      const value = await this.#guarded(attempt, target, call.breaker);
      this.#count('ok');
      return value;
    } catch (error) {
      const isCanceled = total.signal.aborted && !total.expired;
      this.#count(isCanceled ? 'canceled' : error === attempt.callerError ? 'caller' : outcomeOf(error), error);
      throw error;
    }
  }

  async #guarded<T>(attempt: Attempt<T>, target: Target, breaker: Breaker): Promise<T> {
    const { request, total, use } = attempt;
    const headers = headersOf(request, this.#limits);
    const release = await this.#slots.acquire(target.origin, total.signal);
    const permit = breaker.tryAcquire();
    if (permit === undefined) {
      release();
      throw breaker.openError();
    }
    let answer: Answer | undefined;
    try {
      answer = await this.#answer({
        agent: this.#agent,
        target,
        request,
        headers,
        total,
        limits: this.#limits,
        peerOf: (socket) => this.#dialer.peerOf(socket),
        onClosed: release,
      });
      const { status } = answer;
      if (attempt.isRetried && (status === 503 || status === 504))
        throw statusError(status, answer.headers['retry-after']);
      const given = answer;
      const value = await total.run((signal) => use(given, signal));
      permit.settle(status >= 500 ? 'failure' : 'success');
      return value;
    } catch (error) {
      permit.settle(verdictAbout(error, answer, total));
      const isServers = answer?.body.failure !== undefined || isStatusError(error) || total.signal.aborted;
      if (answer !== undefined && !isServers) attempt.callerError = error;
      throw error;
    } finally {
      answer?.body.release();
    }
  }

  /** Sends it, and once more on a fresh connection if a kept one turned out to be closed. */
  async #answer(init: SendInit): Promise<Answer> {
    try {
      return await send(init);
    } catch (error) {
      if (!(error instanceof StaleConnection) || !isIdempotent(init.request)) throw error;
    }
    const { origin } = init.target;
    this.#agent.closeIdle(origin);
    // The slot of the first try went back with its connection.
    return await send({ ...init, onClosed: await this.#slots.acquire(origin, init.total.signal) });
  }

  #count(outcome: Outcome, error?: unknown): void {
    this.#counts[outcome]++;
    this.#init.onOutcome?.(outcome, error);
  }
}

/** One call of `exchange`; the fields that change belong to its current try. */
interface Attempt<T> {
  readonly request: EgressRequest;
  readonly total: Deadline;
  readonly use: Use<T>;
  readonly isRetried: boolean;
  breaker?: Breaker;
  /** The error of `use`, when the server is not its cause. */
  callerError?: unknown;
}

function verdictAbout(error: unknown, answer: Answer | undefined, total: Deadline): Verdict {
  // The caller left, or its own work took too long: that says nothing about the server.
  const isDue = answer === undefined || answer.body.waiting;
  if (total.signal.aborted) return total.expired && isDue ? 'failure' : 'none';
  if (answer === undefined) return verdictOf(error);
  const { failure } = answer.body;
  if (failure !== undefined) return verdictOf(failure);
  return answer.status >= 500 ? 'failure' : 'success';
}

const closedError = (): RonError => new RonError('closed', 'the egress client is closed', { op: 'egress' });

const isStatusError = (error: unknown): boolean => isRonError(error) && error.op === 'egress_status';

function statusError(status: 503 | 504, retry_after: readonly string[] | undefined): RonError {
  const code = status === 503 ? 'not_ready' : 'timeout';
  const retry_after_ms = retryAfter_ms(retry_after, sched.wall_ms());
  return new RonError(code, `the server answered with ${status}`, {
    op: 'egress_status',
    details: { status },
    ...(retry_after_ms === undefined ? {} : { retry_after_ms }),
  });
}
