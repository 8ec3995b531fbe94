/**
 * How many retries an operation may still make, over all of its callers: so that retries cannot turn a slow target into
 * a dead one.
 *
 * Contract: any window of `window_ms` that ends with a retry holds no more than max(`floor`, `ratio` x calls) retries.
 * Bound: `ops_max` + 1 windows of fixed size. Overflow: an operation beyond `ops_max` shares one budget with all others
 * that are.
 */
import { assert } from '../errors.ts';
import { RollingWindow } from '../overload/rolling-window.ts';
import { sched, touch } from '../sched.ts';

export interface RetryBudgetInit {
  /** Retries as a share of calls. Default 0.1. */
  ratio?: number;
  /** Retries per window that are always allowed. Default 10. */
  floor?: number;
  /** Default 10 000. */
  window_ms?: number;
  /** Operations with a budget of their own; all beyond share one. Default 256. */
  ops_max?: number;
}

const CALLS = 0;
const RETRIES = 1;
const OTHERS = '(others)';

export class RetryBudget {
  /** Retries refused since the start. */
  refused_total = 0;
  readonly #ratio: number;
  readonly #floor: number;
  readonly #window_ms: number;
  readonly #ops_max: number;
  readonly #byOp = new Map<string, RollingWindow>();

  constructor(init: RetryBudgetInit = {}) {
    this.#ratio = init.ratio ?? 0.1;
    this.#floor = init.floor ?? 10;
    this.#window_ms = init.window_ms ?? 10_000;
    this.#ops_max = init.ops_max ?? 256;
    assert(this.#ratio >= 0 && this.#floor >= 0, 'retry budget: ratio and floor are not negative');
  }

  /** A call was made: its first try. */
  onCall(op: string): void {
    this.#windowOf(op).add(CALLS);
  }

  /** Takes one retry out of the budget, if there is one. */
  trySpend(op: string): boolean {
    const window = this.#windowOf(op);
    const now_ms = sched.now_ms();
    if (window.covering(RETRIES, now_ms) + 1 > Math.max(this.#floor, this.#ratio * window.total(CALLS, now_ms))) {
      this.refused_total++;
      return false;
    }
    window.add(RETRIES, 1, now_ms);
    return true;
  }

  #windowOf(op: string): RollingWindow {
    touch(this);
    const own = this.#byOp.get(op);
    if (own !== undefined) return own;
    const name = this.#byOp.size < this.#ops_max ? op : OTHERS;
    const window = this.#byOp.get(name) ?? new RollingWindow({ window_ms: this.#window_ms, slots: 20 });
    this.#byOp.set(name, window);
    return window;
  }
}
