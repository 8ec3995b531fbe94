/**
 * The clock and the timers of one schedule.
 *
 * Contract: time stands still unless a timer fires or the event loop lags. A timer that fires on time moves the clock to its
 * due time. A lag is time that passes while code runs: the clock runs ahead of timers that are due, so they fire late.
 * A lag happens where it can be noticed: when code reads the clock, when it sets a timer, and between two timers of one
 * list. Timers that are due fire as in Node: by due time, except that Node keeps one list per delay and empties a list
 * before it turns to the next.
 * Bound: `lags_max` lags per schedule, each to a pending due time or by `LAG_MS`.
 *
 *     const clock = new VirtualClock(1, (count) => searchChooses(count));
 *     const timer = clock.add(new Step(task, 'timeout', 'timer'), 10);
 *     clock.read();                    // 0, 10 or LAG_MS: a choice
 *     clock.enabled();                 // [timer]
 *     clock.fire(timer);               // now it is at least 10
 */
import type { Step } from './step.ts';

/** Longer than any time limit that a model is likely to measure. */
export const LAG_MS = 3_600_000;

export class VirtualClock {
  now_ms = 0;
  lags = 0;
  /** Time passes only while code runs, not while the model is built or checked. */
  isRunning = false;
  /** Pending timers, oldest first. */
  readonly timers: Step[] = [];

  readonly #lags_max: number;
  readonly #choose: (count: number) => number;
  /** Code has measured time: before that, a lag has no effect. */
  #isMeasured = false;
  /** The timer that fired last, until another step is taken. */
  #fired: Step | undefined;

  constructor(lags_max: number, choose: (count: number) => number) {
    this.#lags_max = lags_max;
    this.#choose = choose;
  }

  /** The clock as code reads it now. */
  read(): number {
    if (this.#mayLag && (this.#isMeasured || this.timers.length > 0)) {
      const instants = this.#dueTimesAfter(this.now_ms);
      this.#lagTo([...instants, Math.max(this.now_ms, instants.at(-1) ?? 0) + LAG_MS]);
    }
    this.#isMeasured = true;
    return this.now_ms;
  }

  /** Sets a timer. A lag before that may make it due together with any timer that would have been due later. */
  add(timer: Step, delay_ms: number): Step {
    if (this.#mayLag) {
      this.#lagTo(this.#dueTimesAfter(this.now_ms + delay_ms).map((due_ms) => due_ms - delay_ms));
    }
    this.#isMeasured = true;
    timer.due_ms = this.now_ms + delay_ms;
    timer.delay_ms = delay_ms;
    this.timers.push(timer);
    return timer;
  }

  /** False when the timer has fired or was removed before. */
  remove(timer: Step): boolean {
    const index = this.timers.indexOf(timer);
    if (index >= 0) this.timers.splice(index, 1);
    return index >= 0;
  }

  /** The timers that could fire next: those due first, or the next in the list that Node is emptying. */
  enabled(): Step[] {
    const earliest_ms = Math.min(...this.timers.map((timer) => timer.due_ms));
    const next = this.nextInList;
    return this.timers.filter((timer) => timer.due_ms === earliest_ms || timer === next);
  }

  /** The next in the list that Node is emptying, if it is due or a lag may make it so. */
  get nextInList(): Step | undefined {
    const list = this.#fired && Math.trunc(this.#fired.delay_ms);
    const next = this.timers.find((timer) => Math.trunc(timer.delay_ms) === list);
    return next !== undefined && (next.due_ms <= this.now_ms || this.#mayLag) ? next : undefined;
  }

  /** Moves the clock for a timer that fires, and forgets it. */
  fire(timer: Step): void {
    const isOvertaking = this.timers.some((other) => other.due_ms < timer.due_ms);
    if (isOvertaking && timer.due_ms > this.now_ms) this.lags++;
    this.now_ms = Math.max(this.now_ms, timer.due_ms);
    this.remove(timer);
    this.#fired = timer;
  }

  /** A timer is due and has not fired. */
  get isLagging(): boolean {
    return this.timers.some((timer) => timer.due_ms <= this.now_ms);
  }

  /** A step is taken that is not a timer: the next timers fire in another turn of the event loop. */
  leaveTimers(): void {
    this.#fired = undefined;
  }

  get #mayLag(): boolean {
    return this.isRunning && this.lags < this.#lags_max;
  }

  #dueTimesAfter(time_ms: number): number[] {
    const due = this.timers.map((timer) => timer.due_ms).filter((due_ms) => due_ms > time_ms);
    return [...new Set(due)].toSorted((a, b) => a - b);
  }

  #lagTo(instants: readonly number[]): void {
    if (instants.length === 0) return;
    const chosen = this.#choose(instants.length + 1);
    if (chosen === 0) return;
    this.lags++;
    this.now_ms = instants[chosen - 1] as number;
  }
}
