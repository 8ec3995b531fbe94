/**
 * States reached before. A schedule that reaches one again is cut: its continuations have been explored.
 *
 * A state is `Model.state`, plus for each task the history of its steps, their outcomes and its reads of the clock, plus
 * the pending steps, the waits and timers in the order in which they began, and the clock. So two states that are taken
 * for one can differ only in shared data that a task has read and remembers, or in data that `Model.state` leaves out.
 * The cross-check at a smaller size is there to find that.
 */
import type { Sleeper } from './sleep-sets.ts';
import type { Run } from '../run/run.ts';
import { outcomeOf, type Step } from '../run/step.ts';

/** The way a state was explored: with fewer switches and lags used and fewer steps asleep, more was. */
interface Visit {
  readonly preemptions: number;
  readonly lags: number;
  readonly asleep: readonly number[];
}

export class Seen {
  readonly #visits = new Map<string, Visit[]>();
  readonly #histories = new Map<string, number>();

  /** The number that stands for `history` followed by `event`. */
  historyAfter(history: number, event: string): number {
    const key = `${history} ${event}`;
    let next = this.#histories.get(key);
    if (next === undefined) {
      next = this.#histories.size + 1;
      this.#histories.set(key, next);
    }
    return next;
  }

  /** Whether everything that can follow `key` has been explored; if not, it is taken to be from now on. */
  covers(key: string, run: Run, sleepers: readonly Sleeper[]): boolean {
    const { preemptions } = run;
    const { lags } = run.clock;
    const asleep = sleepers.map((sleeper) => sleeper.step);
    const visits = this.#visits.get(key);
    if (visits === undefined) {
      this.#visits.set(key, [{ preemptions, lags, asleep }]);
      return false;
    }
    const covered = visits.some(
      (visit) =>
        visit.preemptions <= preemptions && visit.lags <= lags && visit.asleep.every((step) => asleep.includes(step)),
    );
    if (!covered) visits.push({ preemptions, lags, asleep });
    return covered;
  }
}

/** The state of `run` that affects later steps, apart from the model's own data. */
export function runState(run: Run): string {
  const { clock } = run;
  const tasks = [run.root, ...run.tasks].map((task) => `${task.identity}@${task.history}${task.done ? '.' : ''}`);
  const ready = run.ready.map((step) => `${step.identity}${outcomeOf(step)}`);
  // Pauses let steps that were ready before them go first, so with one around the order of readiness is part of the state.
  const isOrdered = run.ready.some((step) => step.kind === 'pause');
  if (isOrdered) run.ready.forEach((step, index) => (ready[index] += `#${orderOf(run, step)}`));
  // Waits and timers are in the order in which they began: a channel serves its waiters in that order.
  const waiting = run.waiting.map((step) => step.identity).join();
  const timers = clock.timers.map((timer) => `${timer.identity}+${timer.due_ms}`).join();
  const next = clock.timers.length > 1 ? (clock.nextInList?.identity ?? '') : '';
  const unordered = [tasks, ready].map((part) => part.toSorted().join()).join(';');
  return [unordered, waiting, timers, next, clock.now_ms, run.randoms_drawn, run.isDelayed].join(';');
}

function orderOf(run: Run, step: Step): number {
  let before = 0;
  for (const other of run.ready) if (other.order < step.order) before++;
  return before;
}
