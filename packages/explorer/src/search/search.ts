/**
 * Depth-first search through every schedule of a model: see the README for the space that is searched.
 *
 * Contract: without `preemptions_max`, a search that ends without a failure has covered every order of turns and every
 * outcome of every choice. Bound: `schedules_max` schedules of `steps_max` steps, `lags_max` lags in each; memory grows
 * with the length of one schedule, and with `hash` with the number of states. Cancellation: `runFor` returns between two
 * schedules.
 */
import { installProbe, installSched, realSched } from '@ron/kernel/sched';
import { enabledSteps, signatureOf } from '../run/enabled.ts';
import { Footprint, merge, type Segment } from '../reduce/footprint.ts';
import type { Build, FailureKind, Model } from '../model.ts';
import { ModelWorld } from '../run/model-world.ts';
import { inEnvironment } from './environment.ts';
import { Path, type Node, type StepNode } from './path.ts';
import { Run, type RunHost } from '../run/run.ts';
import { runState, Seen } from '../reduce/seen.ts';
import { sleepersAfter } from '../reduce/sleep-sets.ts';
import { outcomeOf, type Step, type Task } from '../run/step.ts';
import type { SearchInit } from './search-init.ts';
import { longerTurns, stepNode } from './step-node.ts';
import { decodeTurn } from './turns.ts';
import { VirtualSched } from '../run/virtual-sched.ts';

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
  /** The node that chose the last step, and the footprint of that step. */
  #parent: StepNode | undefined;
  #segment: Segment | undefined;
  #diverged: string | undefined;
  #hasWakes = false;

  constructor(build: Build, init: SearchInit) {
    this.#build = build;
    this.#init = init;
    this.#run = new Run(this, { isDelayed: false, lags_max: 0, footprint: undefined });
  }

  get isOver(): boolean {
    return this.broken !== undefined || this.exhausted || this.schedules + this.pruned >= this.#init.schedules_max;
  }

  /** Runs schedules, at least one, until the search is over or the time is up. Needs a macrotask. */
  runFor(time_ms: number): void {
    const until_ms = realSched.now_ms() + time_ms;
    inEnvironment(this.#init.sleepSets ? () => this.#run.footprint : undefined, () => {
      do this.#runOnce();
      while (!this.isOver && realSched.now_ms() < until_ms);
    });
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
    this.remember(this.#run.task(), `${label}:${chosen}`);
    return chosen;
  }

  remember(task: Task, event: string): void {
    if (this.#init.hash) task.history = this.#seen.historyAfter(task.history, event);
  }

  onUnhandled(run: Run, what: string, cause: unknown): void {
    // In a schedule that was cut or failed, the handler may not have been reached.
    if (this.broken !== undefined || !run.isSound) return;
    this.#fail('task', new Error(`${what}: ${messageOf(cause)}`, { cause }), run);
  }

  #runOnce(): void {
    this.#parent = undefined;
    this.#segment = undefined;
    this.#diverged = undefined;
    this.#path.rewind();
    const { sleepSets, lags_max } = this.#init;
    const isDelayed = this.#chooseDelayed();
    const footprint = sleepSets ? new Footprint(() => this.#run.task()) : undefined;
    const run = new Run(this, { isDelayed, lags_max, footprint });
    run.choices.push(Number(isDelayed));
    this.#run = run;
    installSched(new VirtualSched(run));
    if (footprint !== undefined) installProbe((object) => footprint.touches(object));
    footprint?.begin();
    this.#model = run.enter(() => this.#build(new ModelWorld(run)));
    footprint?.end();
    if (this.#init.hash && this.#model.state === undefined) throw new Error('hash needs a model with state()');
    while (this.#step());
    this.#hasWakes ||= run.hasWakes;
    if (this.broken !== undefined) return;
    this.exhausted =
      this.#init.script !== undefined || !this.#path.advance((node, isFirst) => this.#extend(node, isFirst));
  }

  /** The first choice of every schedule: whether woken waiters go on at once or at a step of their own. */
  #chooseDelayed(): boolean {
    const path = this.#path;
    if (path.isNew) {
      const choices = this.#init.script === undefined ? [0] : this.#toTry(2);
      path.push({ kind: 'data', choices, at: 0, label: 'delayed', count: 2 });
    }
    return path.take() === 1;
  }

  /** Adds choices that depend on the outcome of the first choices of `node`. */
  #extend(node: Node, isFirst: boolean): void {
    if (node.kind === 'data') {
      if (isFirst && node.choices.length === 1 && this.#hasWakes && this.#init.delayed) node.choices = [0, 1];
    } else if (!node.isExtended) {
      node.isExtended = true;
      if (!this.#run.isDelayed) node.choices = [...node.choices, ...longerTurns(node, this.#init)];
    }
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
    const turn = node.kind === 'step' ? this.#follow(node) : undefined;
    if (turn === undefined) return this.#fail('nondeterminism', new Error(NOT_THE_SAME));
    this.#take(node as StepNode, turn);
    return true;
  }

  /** Fails the schedule when its last step broke something. Steps that the path repeats were checked the first time. */
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

  /** A new node: lists its choices. Undefined when all of them are covered elsewhere. */
  #open(): StepNode | undefined {
    const run = this.#run;
    const asleep =
      this.#parent === undefined || this.#segment === undefined ? [] : sleepersAfter(this.#parent, this.#segment);
    if (this.#init.hash) {
      const switcher = this.#init.preemptions_max === Infinity ? '' : (run.last?.identity ?? '');
      const key = `${runState(run)};${switcher};${this.#model.state?.() ?? ''}`;
      if (this.#seen.covers(key, run, asleep)) return undefined;
    }
    const enabled = enabledSteps(run);
    const node = stepNode(run, enabled, asleep);
    node.choices = this.#singleTurns(enabled.length).filter(
      (turn) => !node.isAsleep[turn] && !((node.preemptions[turn] ?? 0) > this.#init.preemptions_max),
    );
    if (node.choices.length === 0) return undefined;
    this.#path.push(node);
    return node;
  }

  /** Every turn of one step, or the turn that the script wants. */
  #singleTurns(enabled: number): readonly number[] {
    const { script } = this.#init;
    return script === undefined ? upTo(enabled) : [script.get(this.#path.length) ?? 0];
  }

  /** The indices to try of `count`: all of them, or the one that the script wants. */
  #toTry(count: number): readonly number[] {
    const { script } = this.#init;
    if (script === undefined) return upTo(count);
    // A choice that does not exist here makes a trace that is not the seed's: `replay` compares them.
    return [Math.min(script.get(this.#path.length) ?? 0, count - 1)];
  }

  /** The steps of the turn that `node` chooses, unless other steps are pending than when the node was made. */
  #follow(node: StepNode): Step[] | undefined {
    const run = this.#run;
    if (node.signature !== signatureOf(run)) return undefined;
    const pending = [...run.ready, ...run.clock.timers];
    const steps = decodeTurn(this.#takeChoice(), node.steps.length).map((index) =>
      pending.find((step) => step.identity === node.steps[index] && step.label === node.labels[index]),
    );
    return steps.every((step) => step !== undefined) ? steps : undefined;
  }

  #takeChoice(): number {
    const chosen = this.#path.take();
    this.#run.choices.push(chosen);
    return chosen;
  }

  #take(node: StepNode, turn: readonly Step[]): void {
    const { footprint } = this.#run;
    this.steps += turn.length;
    for (const step of turn) this.remember(step.task, `${step.label}${outcomeOf(step)}`);
    footprint?.begin();
    const goesOn = this.#run.fire(turn);
    this.#parent = node;
    this.#segment = footprint?.end();
    if (turn.length > 1) return;
    const index = node.choices[node.at] as number;
    node.goesOn[index] ||= goesOn;
    if (this.#segment !== undefined) node.segments[index] = merge(node.segments[index], this.#segment);
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
