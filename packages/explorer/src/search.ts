/**
 * Depth-first search through every schedule of a model.
 *
 * Promise: without `preemptions`, a search that ends without a failure has covered every order of steps and every
 * outcome of every choice. Bound: `schedules_max` schedules of `steps_max` steps; memory grows with the length of one
 * schedule, and with `hash` with the number of states. Cancellation: `runFor` returns between two schedules.
 */
import { installProbe, installSched } from '@ron/kernel/sched';
import { conflicts, Footprint, merge, type Segment } from './footprint.ts';
import { drainMicrotasks } from './microtasks.ts';
import type { Build, FailureKind, Model } from './model.ts';
import { ModelWorld } from './model-world.ts';
import { Path, type Sleeper, type StepNode } from './path.ts';
import { Run, type RunHost } from './run.ts';
import { outcomeOf, runState, Seen } from './seen.ts';
import { type Step, type Task } from './step.ts';
import { VirtualSched } from './virtual-sched.ts';

export interface SearchInit {
  readonly preemptions_max: number;
  readonly hash: boolean;
  readonly sleepSets: boolean;
  readonly steps_max: number;
  readonly schedules_max: number;
  /** Choices to make instead of searching, by position; missing ones are 0. */
  readonly script?: ReadonlyMap<number, number>;
}

/** A schedule that broke something. */
export interface Broken {
  readonly kind: FailureKind;
  readonly error: unknown;
  readonly trace: readonly string[];
  readonly choices: readonly number[];
  readonly preemptions: number;
}

/** How one schedule went on so far. */
interface Progress {
  last: Task | undefined;
  preemptions: number;
  depth: number;
  /** What the step before touched, and the node that chose it. */
  segment: Segment | undefined;
  parent: StepNode | undefined;
}

export class Search implements RunHost {
  schedules = 0;
  steps = 0;
  pruned = 0;
  depth_max = 0;
  broken: Broken | undefined;
  /** Nothing is left to explore within the bounds. */
  exhausted = false;
  /** The script wanted a choice that does not exist. */
  offScript = false;
  /** Called at the end of each schedule that is not cut, with the model's last state. */
  onEnd: ((state: string) => void) | undefined;

  readonly #build: Build;
  readonly #init: SearchInit;
  readonly #path = new Path();
  readonly #seen = new Seen();
  readonly #identities = new Map<string, number>();
  #run!: Run;
  #diverged: string | undefined;

  constructor(build: Build, init: SearchInit) {
    this.#build = build;
    this.#init = init;
  }

  get isOver(): boolean {
    return this.broken !== undefined || this.exhausted || this.schedules + this.pruned >= this.#init.schedules_max;
  }

  /** Runs schedules until the search is over or the time is up. Needs to be called on a macrotask. */
  runFor(time_ms: number): void {
    const until_ms = performance.now() + time_ms;
    const previous = installSched(new VirtualSched(new Run(this, undefined)));
    const previousProbe = installProbe(undefined);
    try {
      while (!this.isOver && performance.now() < until_ms) this.runOnce();
    } finally {
      installSched(previous);
      installProbe(previousProbe);
    }
  }

  /** Goes on to the next schedule after a failure. */
  forgiveFailure(): void {
    this.broken = undefined;
    this.exhausted = !this.#path.advance();
  }

  identityOf(parent: number, label: string, nth: number): number {
    const key = `${parent}/${nth}/${label}`;
    let identity = this.#identities.get(key);
    if (identity === undefined) {
      identity = this.#identities.size + 1;
      this.#identities.set(key, identity);
    }
    return identity;
  }

  choose(label: string, count: number): number {
    const path = this.#path;
    if (path.isNew) path.push({ kind: 'data', choices: this.#toTry(count), at: 0, label, count });
    const node = path.node;
    if (node?.kind !== 'data' || node.label !== label || node.count !== count) {
      this.#diverged ??= `it chose '${label}', which it did not do before`;
      return 0;
    }
    const chosen = path.take();
    const task = this.#run.current();
    if (this.#init.hash) task.position = this.#seen.historyAfter(task.position, `${label}:${chosen}`);
    return chosen;
  }

  runOnce(): void {
    const footprint = this.#init.sleepSets ? new Footprint() : undefined;
    const run = new Run(this, footprint);
    this.#run = run;
    this.#diverged = undefined;
    this.#path.rewind();
    installSched(new VirtualSched(run));
    if (footprint !== undefined) installProbe((object) => footprint.touches(object));
    const model = this.#build(new ModelWorld(run));
    if (this.#init.hash && model.state === undefined) throw new Error('hash needs a model with state()');
    drainMicrotasks();
    this.#drive(run, model);
    if (this.broken === undefined) this.exhausted = this.#init.script !== undefined || !this.#path.advance();
  }

  #drive(run: Run, model: Model): void {
    const progress: Progress = { last: undefined, preemptions: 0, depth: 0, segment: undefined, parent: undefined };
    for (;;) {
      if (this.#failed(run, model, progress)) return;
      if (run.ready.length === 0 && run.timers.length === 0) return this.#end(run, model, progress);
      if (progress.depth >= this.#init.steps_max) {
        const message = `still running after ${progress.depth} steps`;
        return this.#fail('livelock', new Error(message), progress);
      }
      const node = this.#path.isNew ? this.#open(run, model, progress) : this.#path.node;
      if (node === undefined) {
        this.pruned++;
        return;
      }
      const step = node.kind === 'step' ? this.#follow(run, node) : undefined;
      if (step === undefined) {
        const message = this.#diverged ?? 'other steps are pending than when the same choices were made before';
        return this.#fail('nondeterminism', new Error(message), progress);
      }
      this.#take(run, node as StepNode, step, progress);
    }
  }

  /** Fails the schedule when its last step broke something. What the path repeats was checked the first time. */
  #failed(run: Run, model: Model, progress: Progress): boolean {
    if (this.#diverged !== undefined) {
      this.#fail('nondeterminism', new Error(this.#diverged), progress);
      return true;
    }
    if (run.rejection !== undefined) {
      this.#fail('task', run.rejection.error, progress);
      return true;
    }
    if (model.invariant === undefined || !this.#path.isNew) return false;
    try {
      model.invariant();
      return false;
    } catch (error) {
      this.#fail('invariant', error, progress);
      return true;
    }
  }

  /** Nothing is pending any more. */
  #end(run: Run, model: Model, progress: Progress): void {
    this.schedules++;
    this.depth_max = Math.max(this.depth_max, progress.depth);
    const blocked = run.blocked();
    if (blocked.length > 0) {
      const waits = blocked.map((task) => `${task.name} at ${task.at}`).join(', ');
      return this.#fail('deadlock', new Error(`blocked: ${waits}`), progress);
    }
    try {
      model.final?.();
    } catch (error) {
      return this.#fail('final', error, progress);
    }
    this.onEnd?.(model.state?.() ?? '');
  }

  /** A place where no schedule has been: lists what to try here. Undefined when all of it is covered elsewhere. */
  #open(run: Run, model: Model, progress: Progress): StepNode | undefined {
    const asleep = progress.parent === undefined ? [] : sleepersAfter(progress.parent, progress.segment);
    if (this.#init.hash) {
      const switcher = this.#init.preemptions_max === Infinity ? '' : (progress.last?.identity ?? '');
      const key = `${runState(run)};${switcher};${model.state?.() ?? ''}`;
      if (this.#seen.covers(key, progress.preemptions, asleep)) return undefined;
    }
    const enabled = run.enabled(progress.last);
    const choices = this.#toTry(enabled.length).filter((index) => {
      const step = enabled[index] as Step;
      if (asleep.some((sleeper) => sleeper.step === step.identity)) return false;
      return progress.preemptions + preempts(step, progress.last, run) <= this.#init.preemptions_max;
    });
    if (choices.length === 0) return undefined;
    const node: StepNode = {
      kind: 'step',
      choices,
      at: 0,
      steps: enabled.map((step) => step.identity),
      tasks: enabled.map((step) => step.task.identity),
      signature: signatureOf(run),
      asleep,
      segments: [],
    };
    this.#path.push(node);
    return node;
  }

  /** The indices to try of `count`: all of them, or the one that the script wants. */
  #toTry(count: number): readonly number[] {
    const script = this.#init.script;
    if (script === undefined) return upTo(count);
    const wanted = script.get(this.#path.length) ?? 0;
    if (wanted < count) return [wanted];
    this.offScript = true;
    return [0];
  }

  /** The step that `node` chooses, unless other steps are pending than when the node was made. */
  #follow(run: Run, node: StepNode): Step | undefined {
    if (node.signature !== signatureOf(run)) return undefined;
    const wanted = node.steps[this.#path.take()];
    return run.ready.find((step) => step.identity === wanted) ?? run.timers.find((step) => step.identity === wanted);
  }

  #take(run: Run, node: StepNode, step: Step, progress: Progress): void {
    progress.preemptions += preempts(step, progress.last, run);
    progress.last = step.task;
    progress.depth++;
    this.steps++;
    if (this.#init.hash) {
      step.task.position = this.#seen.historyAfter(step.task.position, `${step.label}${outcomeOf(step)}`);
    }
    run.footprint?.begin();
    run.fire(step);
    if (run.footprint === undefined) return;
    const chosen = node.choices[node.at] as number;
    progress.segment = run.footprint.end();
    progress.parent = node;
    node.segments[chosen] = merge(node.segments[chosen], progress.segment);
  }

  /** The steps and choices of the last schedule, one line each. */
  trace(): string[] {
    return this.#run.trace.map((entry) => (typeof entry === 'string' ? entry : traceLine(entry)));
  }

  #fail(kind: FailureKind, error: unknown, progress: Progress): void {
    this.broken = { kind, error, trace: this.trace(), choices: this.#path.choices(), preemptions: progress.preemptions };
  }
}

/** Everything tried before at `parent`, or asleep there, that the step taken since cannot have been affected by. */
function sleepersAfter(parent: StepNode, taken: Segment | undefined): Sleeper[] {
  if (taken === undefined) return [];
  const chosen = parent.choices[parent.at] as number;
  const task = parent.tasks[chosen] as number;
  const tried = parent.choices.slice(0, parent.at).map((index) => ({
    step: parent.steps[index] as number,
    task: parent.tasks[index] as number,
    segment: parent.segments[index] as Segment,
  }));
  return [...parent.asleep, ...tried].filter(
    (sleeper) => sleeper.task !== task && !conflicts(sleeper.segment, taken),
  );
}

/** 1 when taking `step` leaves a task that could have gone on. */
function preempts(step: Step, last: Task | undefined, run: Run): 0 | 1 {
  if (last === undefined || (step.task === last && step.kind !== 'timer')) return 0;
  return run.ready.some((other) => other.task === last) ? 1 : 0;
}

/** The pending steps as one number that does not depend on their order. */
function signatureOf(run: Run): number {
  let signature = run.ready.length;
  for (const step of run.ready) signature += step.identity;
  for (const timer of run.timers) signature += timer.identity + timer.due_ms;
  return signature;
}

function traceLine(step: Step): string {
  const line = `${step.task.name}: ${step.label}`;
  if (step.kind === 'timer') return `${line} (timer, at ${step.due_ms} ms)`;
  return step.failed ? `${line} (failed)` : line;
}

const ranges: number[][] = [];

/** 0, 1, ... count - 1. Shared: not to be changed. */
function upTo(count: number): readonly number[] {
  return (ranges[count] ??= Array.from({ length: count }, (_, index) => index));
}
