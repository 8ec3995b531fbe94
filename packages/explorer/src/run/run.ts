/**
 * One schedule as it executes: its tasks, the steps that could come next, and the virtual clock.
 *
 * It knows nothing of the search, which picks from `enabledSteps` and calls `fire`.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Footprint } from '../reduce/footprint.ts';
import { preempts } from './enabled.ts';
import { drainMicrotasks } from './microtasks.ts';
import { discountReaction, hasLaterWave, markWave } from './reactions.ts';
import { outcomeOf, Step, Task, type StepKind } from './step.ts';
import { VirtualClock } from './virtual-clock.ts';

/** Follows a task through its awaits, independent of the code that settles its promises. */
const taskOfCode = new AsyncLocalStorage<Task>();

/** The part of the search that a run uses. */
export interface RunHost {
  /** A number for `label`, `nth` child of `parent`: the same in every schedule. */
  identityOf(parent: number, label: string, nth: number): number;
  /** Which of `count` outcomes this schedule takes. */
  choose(label: string, count: number): number;
  /** `task` went through `event`: it may remember that. */
  remember(task: Task, event: string): void;
  /** Code of `run`, which has ended by now, left a promise rejected or an exception uncaught. `what` names it. */
  onUnhandled(run: Run, what: string, error: unknown): void;
}

export interface RunInit {
  /** A woken waiter goes on at a step of its own. Else it goes on at once, in the microtasks of the waker, as in Node. */
  readonly isDelayed: boolean;
  readonly lags_max: number;
  readonly footprint: Footprint | undefined;
}

const settled = Promise.resolve();

export class Run {
  readonly isDelayed: boolean;
  readonly clock: VirtualClock;
  readonly tasks: Task[] = [];
  /** Steps that could come next, timers aside. In no order. */
  readonly ready: Step[] = [];
  /** Waits that have not been ended, in the order in which they began. */
  readonly waiting: Step[] = [];
  /** Steps taken and choices made, oldest first. */
  readonly trace: (Step | string)[] = [];
  /** The indices that were chosen, oldest first. */
  readonly choices: number[] = [];
  /** The footprint of the current step, if the search records it. */
  readonly footprint: Footprint | undefined;
  randoms_drawn = 0;
  /** A waiter was woken or a task was started by code, so delayed wake-ups make a difference. */
  hasWakes = false;
  /** The task that moved last, how many steps were taken, and how many of them left a task that could have gone on. */
  last: Task | undefined;
  depth = 0;
  turns = 0;
  preemptions = 0;
  /** The first error that a task ended with. */
  rejection: { readonly error: unknown } | undefined;

  /** Code outside of a task: the construction of the model. */
  readonly root: Task;
  /** It ran to its end and nothing was wrong. */
  isSound = false;

  readonly #host: RunHost;
  readonly #names = new Map<string, number>();
  #orders_given = 0;

  constructor(host: RunHost, { isDelayed, lags_max, footprint }: RunInit) {
    this.#host = host;
    this.isDelayed = isDelayed;
    this.footprint = footprint;
    this.clock = new VirtualClock(isDelayed ? 0 : lags_max, (count) => this.#lag(count));
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
    const task = this.addTask(label, mustEnd);
    const step = new Step(task, 'start', 'start');
    // In a microtask, like any other step: so that steps of one turn run in the order in which they complete.
    step.go = () => this.as(task, () => void settled.then(() => void run()));
    this.offer(step);
  }

  addTask(label: string, mustEnd: boolean): Task {
    const parent = this.task();
    const identity = this.#host.identityOf(parent.identity, label, parent.children_made++);
    const task = new Task(this, this.tasks.length, identity, this.#uniqueName(label), mustEnd);
    this.tasks.push(task);
    return task;
  }

  end(task: Task): void {
    discountReaction();
    task.done = true;
  }

  reject(task: Task, error: unknown): void {
    task.done = true;
    this.rejection ??= { error };
  }

  /** Calls `work` as code of `task`. */
  as<T>(task: Task, work: () => T): T {
    return taskOfCode.run(task, work);
  }

  leaveUnhandled(what: string, error: unknown): void {
    this.#host.onUnhandled(this, what, error);
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

  /** The clock as code reads it. */
  now_ms(): number {
    this.footprint?.readsClock();
    const before_ms = this.clock.now_ms;
    const now_ms = this.clock.read();
    this.#noteLag(before_ms);
    this.#host.remember(this.task(), `at ${now_ms}`);
    return now_ms;
  }

  addTimer(delay_ms: number, fire: () => void, label: string): Step {
    this.footprint?.writesClock();
    const before_ms = this.clock.now_ms;
    const timer = this.clock.add(new Step(this.task(), label, 'timer'), delay_ms);
    this.#noteLag(before_ms);
    timer.go = () => {
      this.clock.fire(timer);
      this.footprint?.writesClock();
      this.as(timer.task, fire);
    };
    return timer;
  }

  removeTimer(timer: Step): void {
    if (this.clock.remove(timer)) this.footprint?.writesClock();
  }

  /** A wait begins. */
  wait(step: Step): void {
    this.footprint?.creates(step);
    this.waiting.push(step);
  }

  /** A wait ends: its task goes on at once, or at a step of its own. */
  wake(step: Step): void {
    this.hasWakes = true;
    this.waiting.splice(this.waiting.indexOf(step), 1);
    if (this.isDelayed) return this.offer(step);
    this.#host.remember(step.task, `${step.label}${outcomeOf(step)}`);
    this.footprint?.runs(step.task);
    step.go();
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
    return this.ready.length === 0 && this.clock.timers.length === 0;
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

  /**
   * Takes the steps of one turn of the event loop: all complete, in order, and then everything that they set going runs
   * until all tasks wait again. True when that took more than one wave of microtasks.
   */
  fire(turn: readonly Step[]): boolean {
    this.clock.isRunning = true;
    this.turns++;
    for (const [index, step] of turn.entries()) {
      this.preemptions += index > 0 ? 1 : preempts(this, step);
      this.depth++;
      step.isJoined = index > 0;
      this.last = step.task;
      this.trace.push(step);
      this.footprint?.runs(step.task);
      if (step.kind !== 'timer') {
        remove(this.ready, step);
        this.clock.leaveTimers();
      }
      try {
        step.go();
      } catch (error) {
        // A timer's callback threw; in production that ends the process.
        this.reject(step.task, error);
      }
    }
    markWave();
    drainMicrotasks();
    this.clock.isRunning = false;
    return hasLaterWave();
  }

  #noteLag(before_ms: number): void {
    const { now_ms } = this.clock;
    if (now_ms > before_ms) this.trace.push(`${this.task().name}: time passes, the clock shows ${now_ms} ms`);
  }

  /** Which of `count` instants the clock shows: 0 when it has not run ahead. */
  #lag(count: number): number {
    const chosen = this.#host.choose('lag', count);
    if (chosen > 0) this.footprint?.writesClock();
    return chosen;
  }

  #uniqueName(label: string): string {
    const nth = (this.#names.get(label) ?? 0) + 1;
    this.#names.set(label, nth);
    return nth === 1 ? label : `${label}#${nth}`;
  }
}

function remove(steps: Step[], step: Step): boolean {
  const index = steps.indexOf(step);
  if (index < 0) return false;
  const moved = steps.pop() as Step;
  if (moved !== step) steps[index] = moved;
  return true;
}
