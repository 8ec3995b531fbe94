/**
 * One timer for the deadlines of many jobs, in place of one for each.
 *
 * Contract: `sweep` is called no later than the earliest time that `by` was given, and at most once per SWEEP_MS_MIN. It
 * checks the deadlines and returns when the next one expires, Infinity for none.
 * Bound: one timer. While jobs come and go it is left to fire in vain, which is cheaper than one timer for each job.
 * Cancellation: `stop` cancels the timer; the next `by` sets it again.
 *
 *   const sweep = new DeadlineSweep('work.deadlines', (now_ms) => expireJobs(now_ms));
 *   sweep.by(job.expires_ms, now_ms);
 */
import { sched, type Timer } from '../sched.ts';

/** Deadlines are noticed at most this much late; Node's timers are no finer. */
const SWEEP_MS_MIN = 1;

export class DeadlineSweep {
  readonly #label: string;
  readonly #sweep: (now_ms: number) => number;
  #timer: Timer | undefined;
  #at_ms = Infinity;

  constructor(label: string, sweep: (now_ms: number) => number) {
    this.#label = label;
    this.#sweep = sweep;
  }

  by(at_ms: number, now_ms: number): void {
    if (this.#at_ms <= at_ms) return;
    this.stop();
    const delay_ms = Math.max(at_ms - now_ms, SWEEP_MS_MIN);
    this.#at_ms = now_ms + delay_ms;
    this.#timer = sched.timer(delay_ms, () => this.#fire(), this.#label);
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#at_ms = Infinity;
  }

  #fire(): void {
    this.stop();
    const now_ms = sched.now_ms();
    const next_ms = this.#sweep(now_ms);
    if (next_ms < Infinity) this.by(next_ms, now_ms);
  }
}
