/**
 * A service that interop calls: its breaker, the samples of its calls, and its brownout.
 *
 *     const token = await passport.call('exchange', deadline, (signal) => client.exchange(request, { signal }));
 *
 * Contract: `call` ends no later than its deadline. It rejects with `breaker_open` without a call while the breaker is open. A
 * failure of the upstream becomes 503 or 504 with the reason DOWNSTREAM_UNAVAILABLE (`upstream-call.ts`); `outcome.ts` states
 * which errors count. A refusal by the breaker gives no sample: no call was made.
 * Probes bypass the breaker and give samples to the brownout only: an upstream may answer a probe and still fail work, so only
 * work closes its breaker.
 * Bound: windows of fixed size; callers bound the calls. Overflow: the breaker lets one call through while it is half-open.
 * Cancellation: by the deadline of each call; a cancelled call gives no sample.
 */
import {
  isRonError,
  RonError,
  sched,
  type Breaker,
  type Brownout,
  type BrownoutInit,
  type Deadline,
} from '@ron/kernel';
import type { BrownoutMode, UpstreamDto, UpstreamName } from '@ron/proto';
import { lateError, REASON, UpstreamCall } from './upstream-call.ts';

export interface UpstreamInit {
  readonly name: UpstreamName;
  readonly breaker: Breaker;
  /** Default: it is never shed. */
  readonly brownout?: {
    readonly state: Brownout;
    readonly limits: BrownoutInit;
    readonly manual: { readonly mode: BrownoutMode };
  };
  /** The latency at which it counts as slow. */
  readonly slow_ms: number;
  /** Why it cannot be called, such as a missing URL. Default: it can. */
  readonly missing?: string | undefined;
  /** Called when a connection was not established in time. */
  readonly onConnectTimeout?: () => void;
}

/** `runtime.retry` of a declared operation. */
export type Retry = <T>(work: (signal: AbortSignal) => Promise<T>, init: { readonly deadline: Deadline }) => Promise<T>;

export class Upstream {
  readonly name: UpstreamName;
  readonly missing: string | undefined;
  readonly #init: UpstreamInit;
  /** Calls that gave a sample since the start, without probes. */
  sampled_total = 0;
  /** The figures with which the present brownout began. */
  #began_by: string | undefined;

  constructor(init: UpstreamInit) {
    this.name = init.name;
    this.missing = init.missing;
    this.#init = init;
  }

  /** Whether work can succeed now, as far as known: it is configured, not shed, and the breaker is not open. */
  get isReady(): boolean {
    return !this.sheds && this.canTry;
  }

  /** Whether a call may be made now: also in a brownout that the sentinel began, because its calls end it; not in one of an operator. */
  get canTry(): boolean {
    return (
      this.missing === undefined && this.#init.breaker.state !== 'open' && this.#init.brownout?.manual.mode !== 'on'
    );
  }

  /** Whether optional work is shed: in a brownout, unless the mode is `off`, or if the mode is `on`. */
  get sheds(): boolean {
    const { brownout } = this.#init;
    if (brownout === undefined) return false;
    const { mode } = brownout.manual;
    return mode === 'on' || (mode === 'auto' && brownout.state.isActive);
  }

  /** Whether the sentinel found it unhealthy, in any mode. */
  get isInBreach(): boolean {
    return this.#init.brownout?.state.isActive ?? false;
  }

  /** For the gates of `/readyz`. A brownout that sheds nothing, because the mode is `off`, is none. */
  get problem(): string | undefined {
    if (this.missing !== undefined) return this.missing;
    if (this.#init.breaker.state !== 'closed') return `the breaker for ${this.name} is ${this.#init.breaker.state}`;
    if (!this.sheds) return undefined;
    return this.breach ?? 'an operator set the brownout mode to on';
  }

  /** Why it is in a brownout: the figures at its start. */
  get breach(): string | undefined {
    return this.isInBreach ? this.#began_by : undefined;
  }

  async call<T>(op: string, deadline: Deadline, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    using call = this.begin(op, deadline);
    try {
      // [interop I-4] [interop I-5] It ends with the deadline or its signal, even if the work ignores both.
      const value = await deadline.run(work);
      call.end();
      return value;
    } catch (error) {
      throw this.#failed(call, error);
    }
  }

  /** Tries idempotent work several times within the deadline, by the declared `retry` of the runtime. */
  async callIdempotent<T>(
    op: string,
    deadline: Deadline,
    work: (signal: AbortSignal) => Promise<T>,
    retry: Retry,
  ): Promise<T> {
    const begun_ms = sched.now_ms();
    try {
      return await retry(() => this.call(op, deadline, work), { deadline });
    } catch (error) {
      // The retry ends with the deadline too, and its error comes first.
      if (!isRonError(error, 'timeout') || error.reason !== undefined) throw error;
      throw lateError({ upstream: this.name, op, duration_ms: sched.now_ms() - begun_ms }, error);
    }
  }

  /** For streams: the caller reports the outcome. Throws `breaker_open`, or `not_ready` without an upstream. */
  begin(op: string, deadline?: Deadline): UpstreamCall {
    const { name, breaker, slow_ms } = this.#init;
    if (this.missing !== undefined) throw new RonError('not_ready', this.missing, { op, reason: REASON });
    const isTrial = breaker.state === 'half_open';
    const permit = breaker.tryAcquire();
    if (permit === undefined) throw this.#refusal(op);
    return new UpstreamCall({
      upstream: name,
      op,
      deadline,
      slow_ms,
      isTrial,
      onVerdict: (outcome) => permit.settle(VERDICTS[outcome]),
      onSample: this.#onSample,
    });
  }

  /** A call that only gives a sample. Never rejects. */
  async probe(deadline: Deadline, work: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
    const { name: upstream, slow_ms } = this.#init;
    using call = new UpstreamCall({
      upstream,
      op: 'probe',
      deadline,
      slow_ms,
      isTrial: false,
      onVerdict: () => undefined,
      onSample: this.#record,
    });
    try {
      await deadline.run(work);
      call.end();
    } catch (error) {
      this.#failed(call, error);
    }
  }

  /** Brings the brownout up to date; the sentinel calls it each second. */
  evaluate(): 'began' | 'ended' | undefined {
    const { brownout } = this.#init;
    if (brownout === undefined) return undefined;
    const wasActive = brownout.state.isActive;
    // The windows are cleared by a change.
    const figures = this.#figures();
    if (brownout.state.evaluate() === wasActive) return undefined;
    this.#began_by = wasActive ? undefined : figures;
    return wasActive ? 'ended' : 'began';
  }

  /** The figures beside the limits that they are compared with now. */
  describe(upstream: UpstreamDto['upstream']): UpstreamDto | undefined {
    const { brownout, breaker } = this.#init;
    if (brownout === undefined) return undefined;
    const { state, limits } = brownout;
    const { isActive, error_rate, latency_ms } = state;
    return {
      upstream,
      active: isActive,
      sheds: this.sheds,
      breaker: breaker.state,
      ...(error_rate !== undefined && { error_rate }),
      error_rate_limit: isActive ? limits.errors.leave : limits.errors.enter,
      ...(latency_ms !== undefined && { p95_ms: latency_ms }),
      p95_limit_ms: isActive ? limits.latency.leave_ms : limits.latency.enter_ms,
    };
  }

  #figures(): string | undefined {
    const { brownout } = this.#init;
    if (brownout === undefined) return undefined;
    const { state, limits } = brownout;
    const { error_rate = 0, latency_ms = 0 } = state;
    const failed = `${percent(error_rate)} of calls to ${this.name} failed (limit ${percent(limits.errors.enter)})`;
    return `${failed}, p95 ${Math.round(latency_ms)} ms (limit ${limits.latency.enter_ms} ms)`;
  }

  readonly #onSample = (latency_ms: number, isError: boolean): void => {
    this.sampled_total += 1;
    this.#record(latency_ms, isError);
  };

  readonly #record = (latency_ms: number, isError: boolean): void => {
    this.#init.brownout?.state.record(latency_ms, isError);
  };

  #failed(call: UpstreamCall, error: unknown): unknown {
    if (isConnectTimeout(error)) this.#init.onConnectTimeout?.();
    return call.fail(error);
  }

  #refusal(op: string): RonError {
    const { name, breaker } = this.#init;
    const { message, retry_after_ms } = breaker.openError();
    const wait = retry_after_ms === undefined ? {} : { retry_after_ms };
    return new RonError('breaker_open', message, { op, reason: REASON, ...wait, details: { upstream: name, op } });
  }
}

const VERDICTS = { ok: 'success', error: 'failure', none: 'none' } as const;

const percent = (share: number): string => `${Number((share * 100).toFixed(2))} %`;

function isConnectTimeout(error: unknown): boolean {
  return error instanceof RonError && error.code === 'unreachable' && error.details?.['system_code'] === 'ETIMEDOUT';
}
