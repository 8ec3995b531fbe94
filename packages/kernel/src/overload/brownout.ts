/**
 * Decides when a target is degraded, by error rate and latency with hysteresis, so that optional work can be shed.
 *
 * Contract: `evaluate` enters the brownout when more than `errors.enter` of the calls in `errors.window_ms` failed and
 * these are at least `errors_min`, or when the quantile of at least `calls_min` latencies in `latency.window_ms` reaches
 * `enter_ms`. It leaves the brownout when that has lasted for `dwell_ms` and, in the last `dwell_ms`, there were calls
 * and all stayed below `errors.leave` and `leave_ms`; failed and slow calls count for up to a tenth longer. Each call
 * is recorded, and each decision made, by one reading of the clock. Without calls it stays: shed traffic gives no samples, so the
 * owner probes. Calls from before a change never count after it, hence at most one brownout begins in `dwell_ms`.
 * Reading the state never changes it. `record` is O(1) and allocates nothing.
 * Bound: four windows of fixed size.
 *
 *     const brownout = new Brownout({ ...BROWNOUT_DEFAULTS, onChange: (isActive) => gauge.set(Number(isActive)) });
 *     brownout.record(latency_ms, isError); // after each call
 *     brownout.evaluate();                  // each second
 *     if (brownout.isActive) throw new RonError('backpressure', 'storage is degraded');
 */
import { assert } from '../errors.ts';
import { RollingWindow } from './rolling-window.ts';
import { sched, touch } from '../sched.ts';
import { LatencyWindow } from './latency-window.ts';

export interface BrownoutInit {
  errors: {
    window_ms: number;
    /** Shares of calls, 0 <= leave <= enter < 1. */
    enter: number;
    leave: number;
    /** Fewer errors than this in the window never enter. */
    errors_min: number;
  };
  latency: {
    window_ms: number;
    /** 0 < leave_ms <= enter_ms. */
    enter_ms: number;
    leave_ms: number;
    /** Fewer calls than this in the window never enter. */
    calls_min: number;
    quantile: number;
  };
  /** The shortest brownout, and how far back calls count for leaving it. */
  dwell_ms: number;
  /** Called after each change. Must not throw. */
  onChange?: (isActive: boolean) => void;
}

/** Error rate 1 % over 5 min, p95 500 ms over 1 min; left after 30 s below 0.5 % and 400 ms. [interop 12] */
export const BROWNOUT_DEFAULTS: BrownoutInit = {
  errors: { window_ms: 300_000, enter: 0.01, leave: 0.005, errors_min: 5 },
  latency: { window_ms: 60_000, enter_ms: 500, leave_ms: 400, calls_min: 20, quantile: 0.95 },
  dwell_ms: 30_000,
};

const CALLS = 0;
const ERRORS = 1;

interface Windows {
  readonly outcomes: RollingWindow;
  readonly latencies: LatencyWindow;
}

export class Brownout {
  /** Brownouts since the start. */
  entered_total = 0;
  readonly #init: BrownoutInit;
  /** Filled while no brownout is active. */
  readonly #entering: Windows;
  /** Filled while one is. */
  readonly #leaving: Windows;
  #isActive = false;
  #since_ms: number;

  constructor(init: BrownoutInit) {
    const { errors, latency, dwell_ms } = init;
    assert(0 <= errors.leave && errors.leave <= errors.enter && errors.enter < 1, 'brownout: 0 <= leave <= enter < 1');
    assert(0 < latency.leave_ms && latency.leave_ms <= latency.enter_ms, 'brownout: 0 < leave_ms <= enter_ms');
    assert(dwell_ms > 0 && Number.isFinite(dwell_ms), 'brownout: dwell_ms > 0');
    this.#init = init;
    this.#entering = windowsOf(errors.window_ms, latency.window_ms);
    this.#leaving = windowsOf(dwell_ms, dwell_ms);
    this.#since_ms = sched.now_ms();
  }

  get isActive(): boolean {
    touch(this);
    return this.#isActive;
  }

  /** When the present state began, on the monotonic clock. */
  get since_ms(): number {
    touch(this);
    return this.#since_ms;
  }

  /** The figures that the present state is judged by; undefined without enough calls. */
  get error_rate(): number | undefined {
    touch(this);
    const { outcomes } = this.#windows;
    const now_ms = sched.now_ms();
    const calls = outcomes.total(CALLS, now_ms);
    return calls === 0 ? undefined : outcomes.total(ERRORS, now_ms) / calls;
  }

  get latency_ms(): number | undefined {
    touch(this);
    return this.#windows.latencies.quantile_ms(this.#init.latency.quantile);
  }

  record(latency_ms: number, isError: boolean): void {
    touch(this);
    const { outcomes, latencies } = this.#windows;
    const now_ms = sched.now_ms();
    outcomes.add(CALLS, 1, now_ms);
    if (isError) outcomes.add(ERRORS, 1, now_ms);
    latencies.record(latency_ms, now_ms);
  }

  /** Brings the state up to date. O(1), a few microseconds: for a task that runs each second, not for each call. */
  evaluate(): boolean {
    touch(this);
    const now_ms = sched.now_ms();
    if (this.#isActive ? this.#mayLeave(now_ms) : this.#mustEnter(now_ms)) this.#change(now_ms);
    return this.#isActive;
  }

  get #windows(): Windows {
    return this.#isActive ? this.#leaving : this.#entering;
  }

  #mustEnter(now_ms: number): boolean {
    const { errors, latency } = this.#init;
    const { outcomes, latencies } = this.#entering;
    const failed = outcomes.total(ERRORS, now_ms);
    if (failed >= errors.errors_min && failed > errors.enter * outcomes.total(CALLS, now_ms)) return true;
    const slow_ms = latencies.quantile_ms(latency.quantile, latency.calls_min, now_ms);
    return slow_ms !== undefined && slow_ms >= latency.enter_ms;
  }

  #mayLeave(now_ms: number): boolean {
    const { errors, latency, dwell_ms } = this.#init;
    if (now_ms - this.#since_ms < dwell_ms) return false;
    const { outcomes, latencies } = this.#leaving;
    // All errors of the last `dwell_ms`, against no call from before: an older call must not end it.
    const calls = outcomes.total(CALLS, now_ms);
    if (calls === 0 || outcomes.covering(ERRORS, now_ms) > errors.leave * calls) return false;
    const slow_ms = latencies.coveringQuantile_ms(latency.quantile, now_ms);
    return slow_ms !== undefined && slow_ms < latency.leave_ms;
  }

  #change(now_ms: number): void {
    this.#isActive = !this.#isActive;
    this.#since_ms = now_ms;
    // Old calls would end a brownout, or begin the next one, that the present ones do not justify.
    this.#windows.outcomes.clear();
    this.#windows.latencies.clear();
    if (this.#isActive) this.entered_total += 1;
    this.#init.onChange?.(this.#isActive);
  }
}

function windowsOf(outcomes_ms: number, latencies_ms: number): Windows {
  return {
    outcomes: new RollingWindow({ window_ms: outcomes_ms }),
    latencies: new LatencyWindow({ window_ms: latencies_ms }),
  };
}
