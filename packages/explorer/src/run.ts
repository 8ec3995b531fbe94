/**
 * One schedule as it executes: its tasks, the steps that could come next, and the virtual clock.
 *
 * It knows nothing of the search. Whoever drives it asks for `enabled`, picks one and calls `fire`.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Footprint } from './footprint.ts';
import { drainMicrotasks } from './microtasks.ts';
import { Step, Task, type StepKind } from './step.ts';

/** Follows a task through its awaits, whoever settles the promise it waits for. */
const taskOfCode = new AsyncLocalStorage<Task>();

/** What a run asks of the search that drives it. */
export interface RunHost {
  /** A number for `label`, `nth` child of `parent`: the same in every schedule. */
  identityOf(parent: number, label: string, nth: number): number;
  /** Which of `count` outcomes this schedule takes. */
  choose(label: string, count: number): number;
}

export class Run {
  readonly tasks: Task[] = [];
  /** Steps that could come next, timers aside. In no order. */
  readonly ready: Step[] = [];
  /** Timers that have not fired; the earliest could come next. */
  readonly timers: Step[] = [];
  /** Steps taken and choices made, oldest first. */
  readonly trace: (Step | string)[] = [];
  /** What the current step touches, when the search wants to know. */
  readonly footprint: Footprint | undefined;
  now_ms = 0;
  randoms_drawn = 0;
  /** The first task that rejected. */
  rejection: { readonly task: Task; readonly error: unknown } | undefined;

  readonly #host: RunHost;
  /** Whatever runs outside a task: the building of the model. */
  readonly #root: Task;
  readonly #names = new Map<string, number>();
  #orders_given = 0;

  constructor(host: RunHost, footprint: Footprint | undefined) {
    this.#host = host;
    this.footprint = footprint;
    this.#root = new Task(-1, 0, 'model', true);
  }

  /** The task whose code is running. */
  current(): Task {
    return taskOfCode.getStore() ?? this.#root;
  }

  /** Adds a task whose start is a step; `run` is called in that step. */
  spawn(label: string, daemon: boolean, run: () => Promise<void>): void {
    const parent = this.current();
    const identity = this.#host.identityOf(parent.identity, label, parent.children_made++);
    const task = new Task(this.tasks.length, identity, this.#uniqueName(label), daemon);
    this.tasks.push(task);
    const step = new Step(task, 'start', 'start');
    step.go = () => void taskOfCode.run(task, run);
    this.offer(step);
  }

  end(task: Task): void {
    task.done = true;
  }

  reject(task: Task, error: unknown): void {
    task.done = true;
    this.rejection ??= { task, error };
  }

  /** A step of the current task, not yet offered. */
  step(label: string, kind: StepKind): Step {
    const task = this.current();
    task.at = label;
    return new Step(task, label, kind);
  }

  offer(step: Step): void {
    step.order = this.#orders_given++;
    this.ready.push(step);
  }

  addTimer(delay_ms: number, fire: () => void, label: string): Step {
    this.footprint?.writesClock();
    const timer = new Step(this.current(), label, 'timer');
    timer.due_ms = this.now_ms + Math.max(0, delay_ms);
    timer.go = () => {
      this.now_ms = timer.due_ms;
      this.footprint?.writesClock();
      taskOfCode.run(timer.task, fire);
    };
    this.timers.push(timer);
    return timer;
  }

  removeTimer(timer: Step): void {
    if (remove(this.timers, timer)) this.footprint?.writesClock();
  }

  choose<T>(label: string, values: readonly T[]): T {
    if (values.length === 0) throw new Error(`choose('${label}') needs at least one value`);
    const chosen = values.length === 1 ? 0 : this.#host.choose(label, values.length);
    const value = values[chosen] as T;
    this.trace.push(`${this.current().name}: ${label} = ${String(value)}`);
    return value;
  }

  /**
   * What could come next, the natural choice first: `last` goes on; else the others in order of creation; else time
   * passes.
   */
  enabled(last: Task | undefined): Step[] {
    const steps = this.ready.filter((step) => step.kind !== 'pause' || this.#mayResume(step));
    const earliest_ms = this.earliest_ms();
    for (const timer of this.timers) if (timer.due_ms === earliest_ms) steps.push(timer);
    return steps.length < 2 ? steps : steps.sort((a, b) => rank(a, last) - rank(b, last) || a.identity - b.identity);
  }

  earliest_ms(): number {
    let earliest_ms = Infinity;
    for (const timer of this.timers) if (timer.due_ms < earliest_ms) earliest_ms = timer.due_ms;
    return earliest_ms;
  }

  /** Takes one enabled step: everything that it sets going runs until all tasks wait again. */
  fire(step: Step): void {
    remove(step.kind === 'timer' ? this.timers : this.ready, step);
    this.trace.push(step);
    try {
      step.go();
    } catch (error) {
      // A timer's callback threw; in production that ends the process.
      this.reject(step.task, error);
    }
    drainMicrotasks();
  }

  /** Tasks that had to end and have not. */
  blocked(): Task[] {
    return this.tasks.filter((task) => !task.done && !task.daemon);
  }

  /** A pause lets everything run first that was ready before it; I/O and timers are not ready, they take their time. */
  #mayResume(pause: Step): boolean {
    return !this.ready.some((step) => step.order < pause.order && step.kind !== 'io');
  }

  #uniqueName(label: string): string {
    const nth = (this.#names.get(label) ?? 0) + 1;
    this.#names.set(label, nth);
    return nth === 1 ? label : `${label}#${nth}`;
  }
}

const TIMERS_LAST = 2 ** 31;

function rank(step: Step, last: Task | undefined): number {
  if (step.kind === 'timer') return TIMERS_LAST + step.task.index;
  return step.task === last ? -2 : step.task.index;
}

function remove(steps: Step[], step: Step): boolean {
  const index = steps.indexOf(step);
  if (index < 0) return false;
  const moved = steps.pop() as Step;
  if (moved !== step) steps[index] = moved;
  return true;
}
