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
  /** A promise was left rejected in `run`, which has ended by now. */
  onUnhandled(run: Run, reason: unknown): void;
}

export class Run {
  readonly tasks: Task[] = [];
  /** Steps that could come next, timers aside. In no order. */
  readonly ready: Step[] = [];
  /** Timers that have not fired; the earliest could come next. */
  readonly timers: Step[] = [];
  /** Steps taken and choices made, oldest first. */
  readonly trace: (Step | string)[] = [];
  /** The indices that were chosen, oldest first. */
  readonly choices: number[] = [];
  /** What the current step touches, when the search wants to know. */
  readonly footprint: Footprint | undefined;
  now_ms = 0;
  randoms_drawn = 0;
  /** The task that moved last, how many steps were taken, and how many of them left a task that could have gone on. */
  last: Task | undefined;
  depth = 0;
  preemptions = 0;
  /** The first error that a task ended with. */
  rejection: { readonly error: unknown } | undefined;

  /** Whatever runs outside a task: the building of the model. */
  readonly root: Task;
  /** It ran to its end and nothing was wrong. */
  isSound = false;

  readonly #host: RunHost;
  readonly #names = new Map<string, number>();
  #orders_given = 0;

  constructor(host: RunHost, footprint: Footprint | undefined) {
    this.#host = host;
    this.footprint = footprint;
    this.root = new Task(this, -1, 0, 'model', false);
  }

  /** The run whose code is running, if any. */
  static current(): Run | undefined {
    return taskOfCode.getStore()?.run;
  }

  /** Calls `build` as code of this run but of none of its tasks. */
  enter<T>(build: () => T): T {
    const built = taskOfCode.run(this.root, build);
    drainMicrotasks();
    return built;
  }

  /** The task whose code is running. */
  task(): Task {
    return taskOfCode.getStore() ?? this.root;
  }

  /** Adds a task whose start is a step; `run` is called in that step. */
  spawn(label: string, mustEnd: boolean, run: () => Promise<void>): void {
    const parent = this.task();
    const identity = this.#host.identityOf(parent.identity, label, parent.children_made++);
    const task = new Task(this, this.tasks.length, identity, this.#uniqueName(label), mustEnd);
    this.tasks.push(task);
    const step = new Step(task, 'start', 'start');
    step.go = () => this.as(task, () => void run());
    this.offer(step);
  }

  end(task: Task): void {
    task.done = true;
  }

  reject(task: Task, error: unknown): void {
    task.done = true;
    this.rejection ??= { error };
  }

  /** Calls `work` as code of `task`. */
  as(task: Task, work: () => void): void {
    taskOfCode.run(task, work);
  }

  leaveUnhandled(reason: unknown): void {
    this.#host.onUnhandled(this, reason);
  }

  /** A step of the current task, not yet offered. */
  step(label: string, kind: StepKind): Step {
    const task = this.task();
    task.at = label;
    return new Step(task, label, kind);
  }

  offer(step: Step): void {
    if (step.kind === 'pause') this.footprint?.pauses();
    else if (step.kind !== 'io') this.footprint?.makesReady();
    step.order = this.#orders_given++;
    this.ready.push(step);
  }

  addTimer(delay_ms: number, fire: () => void, label: string): Step {
    this.footprint?.writesClock();
    const timer = new Step(this.task(), label, 'timer');
    timer.due_ms = this.now_ms + delay_ms;
    timer.go = () => {
      this.now_ms = timer.due_ms;
      this.footprint?.writesClock();
      this.as(timer.task, fire);
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
    this.trace.push(`${this.task().name}: ${label} = ${String(value)}`);
    return value;
  }

  /** The first `steps` steps, and the choices made in them, one line each. */
  lines(steps = this.depth): string[] {
    let taken = 0;
    return this.trace.filter((entry) => (entry instanceof Step ? ++taken : taken) <= steps).map(String);
  }

  /** Nothing can come next. */
  get isOver(): boolean {
    return this.ready.length === 0 && this.timers.length === 0;
  }

  /** Tasks that have to end and have not. */
  blocked(): Task[] {
    return this.tasks.filter((task) => task.mustEnd && !task.done);
  }

  /** For messages: which tasks are blocked, and where. */
  waits(): string {
    const blocked = this.blocked().map((task) => `${task.name} at ${task.at}`);
    return blocked.length === 0 ? '' : `; blocked: ${blocked.join(', ')}`;
  }

  /** The pending steps as one number that does not depend on their order. */
  signature(): number {
    let signature = this.ready.length;
    for (const step of this.ready) signature += step.identity;
    for (const timer of this.timers) signature += timer.identity + timer.due_ms;
    return signature;
  }

  /**
   * What could come next, the natural choice first: the task that moved last goes on; else the others in order of
   * creation; else time passes.
   */
  enabled(): Step[] {
    const steps = this.ready.filter((step) => step.kind !== 'pause' || this.#mayResume(step));
    let earliest_ms = Infinity;
    for (const timer of this.timers) earliest_ms = Math.min(earliest_ms, timer.due_ms);
    for (const timer of this.timers) if (timer.due_ms === earliest_ms) steps.push(timer);
    if (steps.length < 2) return steps;
    return steps.toSorted((a, b) => this.#rank(a) - this.#rank(b) || a.identity - b.identity);
  }

  /** 1 when taking `step` leaves a task that could have gone on. Whoever pauses or waits for time has let go. */
  preempts(step: Step): 0 | 1 {
    const { last } = this;
    if (last === undefined || (step.task === last && step.kind !== 'timer')) return 0;
    return this.ready.some((other) => other.task === last && other.kind !== 'pause') ? 1 : 0;
  }

  /** Takes one enabled step: everything that it sets going runs until all tasks wait again. */
  fire(step: Step): void {
    this.preemptions += this.preempts(step);
    this.depth++;
    this.last = step.task;
    this.trace.push(step);
    remove(step.kind === 'timer' ? this.timers : this.ready, step);
    try {
      step.go();
    } catch (error) {
      // A timer's callback threw; in production that ends the process.
      this.reject(step.task, error);
    }
    drainMicrotasks();
  }

  /** A pause lets everything run first that was ready before it; I/O and timers are not ready, they take their time. */
  #mayResume(pause: Step): boolean {
    return !this.ready.some((step) => step.order < pause.order && step.kind !== 'io');
  }

  #rank(step: Step): number {
    if (step.kind === 'timer') return TIMERS_LAST + step.task.index;
    return step.task === this.last ? FIRST : step.task.index;
  }

  #uniqueName(label: string): string {
    const nth = (this.#names.get(label) ?? 0) + 1;
    this.#names.set(label, nth);
    return nth === 1 ? label : `${label}#${nth}`;
  }
}

const FIRST = -2;
const TIMERS_LAST = 2 ** 31;

function remove(steps: Step[], step: Step): boolean {
  const index = steps.indexOf(step);
  if (index < 0) return false;
  const moved = steps.pop() as Step;
  if (moved !== step) steps[index] = moved;
  return true;
}
