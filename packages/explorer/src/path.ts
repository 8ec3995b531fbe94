/**
 * The choices that lead to where the search is, and at each of them what is left to try.
 *
 * The search is depth first: a schedule repeats the path from the start, extends it with first choices to the end, and
 * then the last choice that has something left moves on.
 */
import type { Segment } from './footprint.ts';
import type { Sleeper } from './sleep-sets.ts';

/** Several steps could come next. */
export interface StepNode {
  readonly kind: 'step';
  /** Which of the enabled steps are tried, as indices. */
  readonly choices: readonly number[];
  /** How far through `choices` the search is. */
  at: number;
  /** The identities of the enabled steps and of their tasks. */
  readonly steps: readonly number[];
  readonly tasks: readonly number[];
  readonly labels: readonly string[];
  /** Differs, most likely, when other steps are pending. */
  readonly signature: number;
  readonly asleep: readonly Sleeper[];
  /** What the steps tried so far touched, by index. */
  readonly segments: (Segment | undefined)[];
}

/** `World.choose`: every outcome is tried. */
export interface DataNode {
  readonly kind: 'data';
  readonly choices: readonly number[];
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

  /** Whether everything the path dictates has happened, so that what follows is new. */
  get isNew(): boolean {
    return this.#cursor === this.#nodes.length;
  }

  /** How many choices lead here. */
  get length(): number {
    return this.#cursor;
  }

  /** The node that decides now, or none when what follows is new. */
  get node(): Node | undefined {
    return this.#nodes[this.#cursor];
  }

  /** Extends the path; the node decides now. */
  push(node: Node): void {
    this.#nodes.push(node);
  }

  /** Takes what the current node chooses. */
  take(): number {
    const node = this.#nodes[this.#cursor++] as Node;
    return node.choices[node.at] as number;
  }

  /** Moves the last choice that has something left. False when nothing is left anywhere. */
  advance(): boolean {
    for (;;) {
      const node = this.#nodes.at(-1);
      if (node === undefined) return false;
      if (++node.at < node.choices.length) return true;
      this.#nodes.pop();
    }
  }
}
