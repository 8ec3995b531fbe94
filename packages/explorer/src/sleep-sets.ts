/**
 * Sleep sets: a step that was tried at a fork need not be tried again further on, as long as nothing was done since that
 * could tell the difference. Every state is still reached; only other ways to the same state are left out.
 */
import { conflicts, type Segment } from './footprint.ts';
import type { StepNode } from './path.ts';

/** A step that need not be taken, and why: what it touched when it was. */
export interface Sleeper {
  readonly step: number;
  readonly task: number;
  readonly segment: Segment;
}

/** What sleeps after `node`'s current choice, which touched `taken`: the sleepers and the tried that it leaves alone. */
export function sleepersAfter(node: StepNode, taken: Segment): Sleeper[] {
  const task = node.tasks[node.choices[node.at] as number];
  const tried = node.choices.slice(0, node.at).map((index) => ({
    step: node.steps[index] as number,
    task: node.tasks[index] as number,
    segment: node.segments[index] as Segment,
  }));
  return [...node.asleep, ...tried].filter((sleeper) => sleeper.task !== task && !conflicts(sleeper.segment, taken));
}
