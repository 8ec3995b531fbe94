/**
 * Sleep sets: a step that was tried at a fork need not be tried again further on, as long as nothing was done since that
 * could tell the difference. Every state is still reached; only other ways to the same state are left out.
 */
import { conflicts, type Segment } from './footprint.ts';
import type { StepNode } from '../search/path.ts';
import { decodeTurn } from '../search/turns.ts';

/** A step that need not be taken, with the footprint it had when it was taken. */
export interface Sleeper {
  readonly step: number;
  readonly task: number;
  readonly segment: Segment;
  /** It goes on after its first wave of microtasks. */
  readonly goesOn: boolean;
}

/** The steps that sleep after `node`'s current choice, which touched `taken`: the sleepers and the tried that it leaves alone. */
export function sleepersAfter(node: StepNode, taken: Segment): Sleeper[] {
  const enabled = node.steps.length;
  const tasks = decodeTurn(node.choices[node.at] as number, enabled).map((index) => node.tasks[index]);
  const singles = node.choices.slice(0, node.at).filter((turn) => turn < enabled);
  const tried = singles.map((index) => sleeperOf(node, index));
  return [...node.asleep, ...tried].filter(
    (sleeper) => !tasks.includes(sleeper.task) && !conflicts(sleeper.segment, taken),
  );
}

/** The step at `index`, which was tried at `node`. */
function sleeperOf(node: StepNode, index: number): Sleeper {
  return {
    step: node.steps[index] as number,
    task: node.tasks[index] as number,
    segment: node.segments[index] as Segment,
    goesOn: node.goesOn[index] as boolean,
  };
}

/** Whether one step of a turn touches nothing that the others touch: then it may as well have a turn of its own. */
export function isSeparable(node: StepNode, turn: readonly number[]): boolean {
  const segments = turn.map((index) => node.segments[index]);
  return segments.some((segment, at) =>
    segments.every((other, index) => index === at || (segment && other && !conflicts(segment, other))),
  );
}
