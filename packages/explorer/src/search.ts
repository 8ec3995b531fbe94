/**
 * Depth-first search through every schedule of a model.
 *
 * Promise: without `preemptions_max`, a search that ends without a failure has covered every order of steps and every
 * outcome of every choice. Bound: `schedules_max` schedules of `steps_max` steps; memory grows with the length of one
 * schedule, and with `hash` with the number of states. Cancellation: `runFor` returns between two schedules.
 */
import { installProbe, installSched, realSched } from '@ron/kernel/sched';
import { forbidRealTimers } from './escapes.ts';
import { Footprint, merge, type Segment } from './footprint.ts';
import type { Build, FailureKind, Model } from './model.ts';
import { ModelWorld } from './model-world.ts';
import { Path, type StepNode } from './path.ts';
import { Run, type RunHost } from './run.ts';
import { outcomeOf, runState, Seen } from './seen.ts';
import { watchSignals } from './signals.ts';
import { sleepersAfter } from './sleep-sets.ts';
import type { Step } from './step.ts';
import { VirtualSched } from './virtual-sched.ts';

export interface SearchInit {
  readonly preemptions_max: number;
  readonly hash: boolean;
  readonly sleepSets: boolean;
  readonly steps_max: number;
  readonly schedules_max: number;
  /** Choices to make instead of searching, by position; missing ones are 0. */
  readonly script?: ReadonlyMap<number, number>;
  /** Told how each schedule that is not cut ends. Then a failure is just another end, and the search goes on. */
  readonly onEnd?: (outcome: string) => void;
}

/** A schedule that broke something. */
export interface Broken {
  readonly kind: FailureKind;
  readonly error: unknown;
  readonly steps: number;
  readonly trace: readonly string[];
  readonly choices: readonly number[];
  readonly preemptions: number;
}

export class Search implements RunHost {
  schedules = 0;
  steps = 0;
  pruned = 0;
  depth_max = 0;
  broken: Broken | undefined;
  /** Nothing is left to explore within the bounds. */
  exhausted = false;

  readonly #build: Build;
  readonly #init: SearchInit;
  readonly #path = new Path();
  readonly #seen = new Seen();
  readonly #identities = new Map<string, number>();
  #run: Run;
  #model: Model = {};
  /** The node that chose the last step, and what that step touched. */
  #parent: StepNode | undefined;
  #segment: Segment | undefined;
  #diverged: string | undefined;

  constructor(build: Build, init: SearchInit) {
    this.#build = build;
    this.#init = init;
    this.#run = new Run(this, undefined);
  }

  get isOver(): boolean {
    return this.broken !== undefined || this.exhausted || this.schedules + this.pruned >= this.#init.schedules_max;
  }

  /** Runs schedules, at least one, until the search is over or the time is up. Needs a macrotask. */
  runFor(time_ms: number): void {
    const until_ms = realSched.now_ms() + time_ms;
    const sched = installSched(realSched);
    const probe = installProbe(undefined);
    const allowRealTimers = forbidRealTimers();
    const unwatchSignals = this.#init.sleepSets ? watchSignals(() => this.#run.footprint) : undefined;
    try {
      do this.#runOnce();
      while (!this.isOver && realSched.now_ms() < until_ms);
    } finally {
      unwatchSignals?.();
      allowRealTimers();
      installProbe(probe);
      installSched(sched);
    }
  }

  /** The first `steps` steps of the last schedule, and the choices in them, one line each. */
  trace(steps: number): string[] {
    return this.#run.lines(steps);
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
    const { node } = path;
    if (node?.kind !== 'data' || node.label !== label || node.count !== count) {
      this.#diverged ??= `choose('${label}') with ${count} values was not called here before`;
      return 0;
    }
    const chosen = this.#takeChoice();
    const task = this.#run.task();
    if (this.#init.hash) task.history = this.#seen.historyAfter(task.history, `${label}:${chosen}`);
    return chosen;
  }

  onUnhandled(run: Run, reason: unknown): void {
    // In a schedule that was cut or failed, whoever would have handled it may not have got there.
    if (this.broken !== undefined || !run.isSound) return;
    const error = new Error(`unhandled rejection: ${messageOf(reason)}`, { cause: reason });
    this.#fail('task', error, run);
  }

  #runOnce(): void {
    const footprint = this.#init.sleepSets ? new Footprint() : undefined;
    const run = new Run(this, footprint);
    this.#run = run;
    this.#parent = undefined;
    this.#segment = undefined;
    this.#diverged = undefined;
    this.#path.rewind();
    installSched(new VirtualSched(run));
    if (footprint !== undefined) installProbe((object) => footprint.touches(object));
    footprint?.begin();
    this.#model = run.enter(() => this.#build(new ModelWorld(run)));
    footprint?.end();
    if (this.#init.hash && this.#model.state === undefined) throw new Error('hash needs a model with state()');
    while (this.#step());
    if (this.broken === undefined) this.exhausted = this.#init.script !== undefined || !this.#path.advance();
  }

  /** Takes the schedule one step on. False when it has ended, failed or been cut. */
  #step(): boolean {
    const run = this.#run;
    if (this.#hasFailed()) return false;
    if (run.isOver) return this.#end();
    if (run.depth >= this.#init.steps_max) {
      return this.#fail('livelock', new Error(`not over after ${run.depth} steps${run.waits()}`));
    }
    const node = this.#path.isNew ? this.#open() : this.#path.node;
    if (node === undefined) {
      this.pruned++;
      return false;
    }
    const step = node.kind === 'step' ? this.#follow(node) : undefined;
    if (step === undefined) return this.#fail('nondeterminism', new Error(NOT_THE_SAME));
    this.#take(node as StepNode, step);
    return true;
  }

  /** Fails the schedule when its last step broke something. What the path repeats was checked the first time. */
  #hasFailed(): boolean {
    if (this.#diverged !== undefined) return !this.#fail('nondeterminism', new Error(this.#diverged));
    const { rejection } = this.#run;
    if (rejection !== undefined) return !this.#fail('task', rejection.error);
    if (!this.#path.isNew) return false;
    try {
      this.#model.invariant?.();
      return false;
    } catch (error) {
      return !this.#fail('invariant', error);
    }
  }

  /** Nothing is pending any more. */
  #end(): false {
    const run = this.#run;
    if (!this.#path.isNew) return this.#fail('nondeterminism', new Error(NOT_THE_SAME));
    this.schedules++;
    this.depth_max = Math.max(this.depth_max, run.depth);
    if (run.blocked().length > 0) return this.#fail('deadlock', new Error(`nothing can happen any more${run.waits()}`));
    try {
      this.#model.final?.();
    } catch (error) {
      return this.#fail('final', error);
    }
    run.isSound = true;
    this.#init.onEnd?.(`state ${this.#model.state?.() ?? ''}`);
    return false;
  }

  /** A place where no schedule has been: lists what to try here. Undefined when all of it is covered elsewhere. */
  #open(): StepNode | undefined {
    const run = this.#run;
    const asleep = this.#parent === undefined ? [] : sleepersAfter(this.#parent, this.#segment as Segment);
    if (this.#init.hash) {
      const switcher = this.#init.preemptions_max === Infinity ? '' : (run.last?.identity ?? '');
      const key = `${runState(run)};${switcher};${this.#model.state?.() ?? ''}`;
      if (this.#seen.covers(key, run.preemptions, asleep)) return undefined;
    }
    const enabled = run.enabled();
    const choices = this.#toTry(enabled.length).filter((index) => {
      const step = enabled[index] as Step;
      if (asleep.some((sleeper) => sleeper.step === step.identity)) return false;
      return run.preemptions + run.preempts(step) <= this.#init.preemptions_max;
    });
    if (choices.length === 0) return undefined;
    const node: StepNode = {
      kind: 'step',
      choices,
      at: 0,
      steps: enabled.map((step) => step.identity),
      tasks: enabled.map((step) => step.task.identity),
      labels: enabled.map((step) => step.label),
      signature: run.signature(),
      asleep,
      segments: [],
    };
    this.#path.push(node);
    return node;
  }

  /** The indices to try of `count`: all of them, or the one that the script wants. */
  #toTry(count: number): readonly number[] {
    const { script } = this.#init;
    if (script === undefined) return upTo(count);
    // A choice that does not exist here makes a trace that is not the seed's: `replay` compares them.
    return [Math.min(script.get(this.#path.length) ?? 0, count - 1)];
  }

  /** The step that `node` chooses, unless other steps are pending than when the node was made. */
  #follow(node: StepNode): Step | undefined {
    const run = this.#run;
    if (node.signature !== run.signature()) return undefined;
    const chosen = this.#takeChoice();
    const isWanted = (step: Step): boolean =>
      step.identity === node.steps[chosen] && step.label === node.labels[chosen];
    return run.ready.find(isWanted) ?? run.timers.find(isWanted);
  }

  #takeChoice(): number {
    const chosen = this.#path.take();
    this.#run.choices.push(chosen);
    return chosen;
  }

  #take(node: StepNode, step: Step): void {
    const { footprint } = this.#run;
    this.steps++;
    if (this.#init.hash) {
      step.task.history = this.#seen.historyAfter(step.task.history, `${step.label}${outcomeOf(step)}`);
    }
    footprint?.begin();
    this.#run.fire(step);
    if (footprint === undefined) return;
    const chosen = node.choices[node.at] as number;
    this.#parent = node;
    this.#segment = footprint.end();
    node.segments[chosen] = merge(node.segments[chosen], this.#segment);
  }

  #fail(kind: FailureKind, error: unknown, run: Run = this.#run): false {
    const { depth: steps, choices, preemptions } = run;
    if (this.#init.onEnd === undefined) {
      this.broken = { kind, error, steps, trace: run.lines(), choices, preemptions };
    } else {
      this.#init.onEnd(`${kind} ${messageOf(error)}`);
    }
    return false;
  }
}

const NOT_THE_SAME =
  'the same choices led elsewhere than before: the model keeps something between schedules, or uses the real clock, ' +
  'chance or I/O';

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const ranges: number[][] = [];

/** 0, 1, ... count - 1. Shared: not to be changed. */
function upTo(count: number): readonly number[] {
  return (ranges[count] ??= Array.from({ length: count }, (_, index) => index));
}
