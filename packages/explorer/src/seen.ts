/**
 * States reached before. A schedule that reaches one again is cut: what follows has been explored.
 *
 * A state is what the model says, plus for each task the whole history of its steps and what they brought it, plus the
 * pending steps and the clock. So two states that are taken for one can differ only in what a task remembers from
 * reading shared data, or in data the model does not mention: `Model.state` has to mention them.
 */
import type { Sleeper } from './sleep-sets.ts';
import type { Run } from './run.ts';
import type { Step } from './step.ts';

/** The way a state was explored: with fewer switches used and fewer steps asleep, more was. */
interface Visit {
  readonly preemptions: number;
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
  covers(key: string, preemptions: number, sleepers: readonly Sleeper[]): boolean {
    const asleep = sleepers.map((sleeper) => sleeper.step);
    const visits = this.#visits.get(key);
    if (visits === undefined) {
      this.#visits.set(key, [{ preemptions, asleep }]);
      return false;
    }
    const covered = visits.some(
      (visit) => visit.preemptions <= preemptions && visit.asleep.every((step) => asleep.includes(step)),
    );
    if (!covered) visits.push({ preemptions, asleep });
    return covered;
  }
}

/** Everything about `run` that decides what can follow, the model's own data aside. */
export function runState(run: Run): string {
  const tasks = [run.root, ...run.tasks].map((task) => `${task.identity}@${task.history}${task.done ? '.' : ''}`);
  const ready = run.ready.map((step) => `${step.identity}${outcomeOf(step)}`);
  const timers = run.timers.map((timer) => `${timer.identity}+${timer.due_ms}`);
  // Pauses let what was ready before them go first, so with one around the order of readiness is part of the state.
  const isOrdered = run.ready.some((step) => step.kind === 'pause');
  if (isOrdered) run.ready.forEach((step, index) => (ready[index] += `#${orderOf(run, step)}`));
  return [tasks, ready, timers].map((part) => part.toSorted().join()).join(';') + `;${run.now_ms};${run.randoms_drawn}`;
}

/** What a step brings its task. Objects cannot be written down; their content is the model's to mention. */
export function outcomeOf(step: Step): string {
  const { value, failed } = step;
  if (failed) return `!${value instanceof Error ? `${value.name} ${value.message}` : textOf(value)}`;
  return value === undefined ? '' : `=${textOf(value)}`;
}

function textOf(value: unknown): string {
  if (typeof value === 'object' && value !== null) return '?';
  return typeof value === 'function' ? '?' : `${typeof value} ${String(value)}`;
}

function orderOf(run: Run, step: Step): number {
  let before = 0;
  for (const other of run.ready) if (other.order < step.order) before++;
  return before;
}
