/**
 * The choices that lead to where the search is, and the alternatives that are left at each of them.
 *
 * The search is depth first: a schedule repeats the path from the start, extends it with first choices to the end, and
 * then the last choice that has something left moves on.
 */
import type { Segment } from '../reduce/footprint.ts';
import type { Sleeper } from '../reduce/sleep-sets.ts';

/** Several steps could come next. */
export interface StepNode {
  readonly kind: 'step';
  /** Which turns are tried, as numbers: see `turns.ts`. Turns of one step first. */
  choices: readonly number[];
  /** How far through `choices` the search is. */
  at: number;
  /** The identities of the enabled steps and of their tasks. */
  readonly steps: readonly number[];
  readonly tasks: readonly number[];
  readonly labels: readonly string[];
  /** Which of the enabled steps may complete in one turn with others. */
  readonly mayJoin: readonly boolean[];
  /** Preemptions of the schedule once the step was taken, by index. */
  readonly preemptions: readonly number[];
  /** Differs, most likely, when other steps are pending. */
  readonly signature: number;
  readonly asleep: readonly Sleeper[];
  /** Whether the step need not be taken, by index. */
  readonly isAsleep: readonly boolean[];
  /** The footprints of the steps tried so far, by index. */
  readonly segments: (Segment | undefined)[];
  /** Steps that go on after their first wave of microtasks, by index: only they can be the first of a longer turn. */
  readonly goesOn: boolean[];
  isExtended: boolean;
}

/** `World.choose`, chance, a lag: every outcome is tried. */
export interface DataNode {
  readonly kind: 'data';
  choices: readonly number[];
  at: number;
  readonly label: string;
  readonly count: number;
}

export type Node = StepNode | DataNode;

export class Path {
  readonly #nodes: Node[] = [];
  #cursor = 0;

  /** Back to the start, to run the next schedule. */
  rewind(): void {
    this.#cursor = 0;
  }

  /** Whether everything the path dictates has happened, so that further choices are new. */
  get isNew(): boolean {
    return this.#cursor === this.#nodes.length;
  }

  /** How many choices lead here. */
  get length(): number {
    return this.#cursor;
  }

  /** The node that decides now, or none when further choices are new. */
  get node(): Node | undefined {
    return this.#nodes[this.#cursor];
  }

  /** Extends the path; the node decides now. */
  push(node: Node): void {
    this.#nodes.push(node);
  }

  /** Takes the choice of the current node. */
  take(): number {
    const node = this.#nodes[this.#cursor++] as Node;
    return node.choices[node.at] as number;
  }

  /**
   * Moves the last choice that has something left. False when nothing is left anywhere. `extend` is called with a node
   * whose choices have all been tried, and may add more.
   */
  advance(extend: (node: Node, isFirst: boolean) => void): boolean {
    for (;;) {
      const node = this.#nodes.at(-1);
      if (node === undefined) return false;
      node.at++;
      if (node.at === node.choices.length) extend(node, this.#nodes.length === 1);
      if (node.at < node.choices.length) return true;
      this.#nodes.pop();
    }
  }
}
