/**
 * A circuit breaker: stops calls to a target that keeps failing, and probes with a few calls whether it has recovered.
 *
 * Contract: Closed -> Open when more than `trip_threshold` of at least `calls_min` calls in the error window failed. Open
 * refuses every call for `cooldown_ms`. Then HalfOpen lets at most `half_open_probes` calls through; as soon as they
 * decide the ratio it is Closed or Open again. Reading the state never consumes a probe. A permit given back without
 * a verdict gives its probe back. A verdict counts only in the state that issued its permit: late results from before a
 * trip, or of an earlier half-open phase, change nothing. Each call reads the clock anew: a caller that reads `state` and
 * then acquires may get a permit although it saw `open`, if the cooldown ended in between.
 * Bound: a fixed number of counters. A half-open phase whose probes stay silent for `cooldown_ms` counts as failed, so a
 * caller that loses its permit cannot keep the breaker half-open permanently; a slower probe no longer counts as in
 * flight.
 * Overflow: a call beyond the probes is refused with `breaker_open`.
 * Cancellation: cancelled work gets no verdict, as it proves nothing about the target.
 */
import { assert, isRonError, RonError } from '../errors.ts';
import { RollingWindow } from './rolling-window.ts';
import { sched, touch } from '../sched.ts';

export type BreakerState = 'closed' | 'open' | 'half_open';
export type Verdict = 'success' | 'failure' | 'none';

export interface BreakerInit {
  /** How far back calls count. */
  error_window_ms: number;
  /** The share of failed calls, 0 <= x < 1, above which it opens. */
  trip_threshold: number;
  /** Fewer calls than this in the window never open it. */
  calls_min: number;
  /** How long it stays open before it probes. */
  cooldown_ms: number;
  /** Calls let through while half-open. */
  half_open_probes: number;
  /** The verdict about the target from the error of a call. Default `verdictOf`. */
  verdictOf?: (error: unknown) => Verdict;
  /** Called after each change of state. Must not throw. */
  onChange?: (target: string, state: BreakerState) => void;
}

/**
 * A cancelled call says nothing. A refusal that a retry would not change (not found, forbidden, ...) shows that
 * the target is well. All else is a failure, timeouts and unknown errors included.
 */
export function verdictOf(error: unknown): Verdict {
  if (error instanceof Error && error.name === 'AbortError') return 'none';
  if (!isRonError(error)) return 'failure';
  if (error.code === 'canceled') return 'none';
  return error.status >= 400 && error.status < 500 && !error.retryable ? 'success' : 'failure';
}

const CALLS = 0;
const ERRORS = 1;

export class Breaker {
  readonly target: string;
  /** Changes to Open since the start. */
  opened_total = 0;
  /** Calls refused since the start. */
  rejected_total = 0;
  readonly #init: BreakerInit;
  readonly #window: RollingWindow;
  #state: BreakerState = 'closed';
  /** When the current state began; while half-open, the last time a probe started or ended. */
  #since_ms: number;
  /** Counts changes of state. A permit of an earlier one has no say. */
  #epoch = 0;
  #probes_out = 0;
  #probes_good = 0;
  #probes_bad = 0;

  constructor(target: string, init: BreakerInit) {
    assert(init.trip_threshold >= 0 && init.trip_threshold < 1, 'breaker: 0 <= trip_threshold < 1');
    assert(init.calls_min >= 1, 'breaker: calls_min >= 1');
    assert(init.cooldown_ms > 0, 'breaker: cooldown_ms > 0');
    assert(Number.isInteger(init.half_open_probes) && init.half_open_probes >= 1, 'breaker: half_open_probes >= 1');
    this.target = target;
    this.#init = init;
    this.#window = new RollingWindow({ window_ms: init.error_window_ms });
    this.#since_ms = sched.now_ms();
  }

  get state(): BreakerState {
    this.#update();
    return this.#state;
  }

  /** The delay before a refused caller should retry; 0 if it need not wait. */
  get retryAfter_ms(): number {
    this.#update();
    return this.#state === 'closed' ? 0 : Math.max(0, this.#since_ms + this.#init.cooldown_ms - sched.now_ms());
  }

  /** Leave to make one call, or undefined when the call must not be made. */
  tryAcquire(): Permit | undefined {
    this.#update();
    if (this.#state === 'open' || (this.#state === 'half_open' && this.#probesLeft() === 0)) {
      this.rejected_total++;
      return undefined;
    }
    if (this.#state === 'half_open') {
      this.#probes_out++;
      this.#since_ms = sched.now_ms();
    }
    return new Permit(this.#epoch, this.#onVerdict);
  }

  /** Makes the call with a permit, or throws `breaker_open`. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const permit = this.tryAcquire();
    if (permit === undefined) throw this.openError();
    try {
      const value = await work();
      permit.success();
      return value;
    } catch (error) {
      permit.settle((this.#init.verdictOf ?? verdictOf)(error));
      throw error;
    }
  }

  openError(): RonError {
    const retry_after_ms = this.retryAfter_ms;
    return new RonError('breaker_open', `the breaker for ${this.target} is ${this.#state}`, { retry_after_ms });
  }

  /** Makes the transitions that depend only on time. */
  #update(): void {
    touch(this);
    if (this.#state === 'closed' || sched.now_ms() < this.#since_ms + this.#init.cooldown_ms) return;
    if (this.#state === 'open') this.#enter('half_open');
    else if (this.#probes_out > 0) this.#enter('open');
  }

  #probesLeft(): number {
    return this.#init.half_open_probes - this.#probes_out - this.#probes_good - this.#probes_bad;
  }

  readonly #onVerdict = (epoch: number, verdict: Verdict): void => {
    touch(this);
    if (epoch !== this.#epoch) return;
    if (this.#state === 'half_open') return this.#onProbe(verdict);
    if (verdict === 'none') return;
    const now_ms = sched.now_ms();
    this.#window.add(CALLS, 1, now_ms);
    if (verdict === 'success') return;
    this.#window.add(ERRORS, 1, now_ms);
    const calls = this.#window.total(CALLS, now_ms);
    const { calls_min, trip_threshold } = this.#init;
    if (calls >= calls_min && this.#window.total(ERRORS, now_ms) > trip_threshold * calls) this.#enter('open');
  };

  #onProbe(verdict: Verdict): void {
    this.#probes_out--;
    if (verdict === 'none') return;
    if (verdict === 'success') this.#probes_good++;
    else this.#probes_bad++;
    this.#since_ms = sched.now_ms();
    // Decided as soon as the probes still to come cannot change it.
    const bad_max = this.#init.trip_threshold * this.#init.half_open_probes;
    if (this.#probes_bad > bad_max) this.#enter('open');
    else if (this.#init.half_open_probes - this.#probes_good <= bad_max) this.#enter('closed');
  }

  #enter(state: BreakerState): void {
    this.#state = state;
    this.#since_ms = sched.now_ms();
    this.#epoch++;
    this.#probes_out = 0;
    this.#probes_good = 0;
    this.#probes_bad = 0;
    this.#window.clear();
    if (state === 'open') this.opened_total++;
    this.#init.onChange?.(this.target, state);
  }
}

/** Permission for one call. Give a verdict exactly once, or release it; `using` releases a permit without a verdict. */
export class Permit implements Disposable {
  readonly #epoch: number;
  #onVerdict: ((epoch: number, verdict: Verdict) => void) | undefined;

  constructor(epoch: number, onVerdict: (epoch: number, verdict: Verdict) => void) {
    this.#epoch = epoch;
    this.#onVerdict = onVerdict;
  }

  success(): void {
    this.settle('success');
  }

  failure(): void {
    this.settle('failure');
  }

  /** Gives it back without a verdict. Does nothing after one. */
  release(): void {
    if (this.#onVerdict !== undefined) this.settle('none');
  }

  settle(verdict: Verdict): void {
    const onVerdict = this.#onVerdict;
    assert(onVerdict !== undefined, 'a permit is settled once');
    this.#onVerdict = undefined;
    onVerdict(this.#epoch, verdict);
  }

  [Symbol.dispose](): void {
    this.release();
  }
}
