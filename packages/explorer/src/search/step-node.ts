/**
 * Where several steps could come next, and the turns of several steps that are worth a try there.
 *
 * A turn of one step is tried first. That shows which steps go on after their first wave of microtasks, and their
 * footprints: a longer turn whose first step does not go on, or with a step that touches nothing of the others, equals turns
 * that are tried anyway.
 */
import type { StepNode } from './path.ts';
import { preempts, signatureOf } from '../run/enabled.ts';
import type { Run } from '../run/run.ts';
import { isSeparable, type Sleeper } from '../reduce/sleep-sets.ts';
import type { Step } from '../run/step.ts';
import { encodeTurn, turnsFrom } from './turns.ts';

/** A node without choices yet. */
export function stepNode(run: Run, enabled: readonly Step[], asleep: readonly Sleeper[]): StepNode {
  const sleeping = enabled.map((step) => asleep.find((sleeper) => sleeper.step === step.identity));
  return {
    kind: 'step',
    choices: [],
    at: 0,
    steps: enabled.map((step) => step.identity),
    tasks: enabled.map((step) => step.task.identity),
    labels: enabled.map((step) => step.label),
    mayJoin: enabled.map((step) => step.mayJoin),
    preemptions: enabled.map((step) => run.preemptions + preempts(run, step)),
    signature: signatureOf(run),
    asleep,
    isAsleep: sleeping.map((sleeper) => sleeper !== undefined),
    segments: sleeping.map((sleeper) => sleeper?.segment),
    goesOn: sleeping.map((sleeper) => sleeper?.goesOn ?? false),
    isExtended: false,
  };
}

export interface TurnLimits {
  readonly preemptions_max: number;
  readonly sleepSets: boolean;
  readonly turn_max: number;
}

/** Turns of several steps, once all turns of one step have been tried. */
export function longerTurns(node: StepNode, { preemptions_max, sleepSets, turn_max }: TurnLimits): number[] {
  const enabled = node.steps.length;
  const joining = node.mayJoin.flatMap((mayJoin, index) => (mayJoin ? [index] : []));
  const turns: number[] = [];
  for (const first of joining.filter((index) => node.goesOn[index])) {
    for (const turn of turnsFrom(first, joining, turn_max)) {
      if ((node.preemptions[first] as number) + turn.length - 1 > preemptions_max) continue;
      if (!sleepSets || !isSeparable(node, turn)) turns.push(encodeTurn(turn, enabled));
    }
  }
  return turns;
}
