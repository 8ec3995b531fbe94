/** Tasks and the steps that they wait for. The explorer chooses among steps. */
import type { Run } from './run.ts';

export type StepKind = 'start' | 'wake' | 'io' | 'pause' | 'timer';

/** A named line of execution. All it does until its next wait belongs to the step that set it going. */
export class Task {
  readonly run: Run;
  /** Creation order within the schedule; the order in which steps are offered. */
  readonly index: number;
  /** The same task has the same identity in every schedule, whenever it was created. */
  readonly identity: number;
  readonly name: string;
  /** The schedule fails if it has not ended at the end. So it is for the model's own tasks, daemons aside. */
  readonly mustEnd: boolean;
  done = false;
  /** False when others may go on in the step in which it ends, unknown to the explorer. */
  isFollowed = true;
  /** The label of its last wait. */
  at = 'start';
  /** Its history so far, as a number that is unique to that history. */
  history = 0;
  steps_made = 0;
  children_made = 0;

  constructor(run: Run, index: number, identity: number, name: string, mustEnd: boolean) {
    this.run = run;
    this.index = index;
    this.identity = identity;
    this.name = name;
    this.mustEnd = mustEnd;
  }
}

/** Steps of one task stay below this, so that task and ordinal fit one number. */
const STEPS_PER_TASK_MAX = 2 ** 20;

/** One thing that can happen next. */
export class Step {
  /** The same step has the same identity in every schedule. */
  readonly identity: number;
  readonly task: Task;
  readonly label: string;
  readonly kind: StepKind;
  /** When it became ready, for `pause`: it lets everything ready before it run first. */
  order = 0;
  due_ms = 0;
  delay_ms = 0;
  /** It completed in the same turn of the event loop as the step before it. */
  isJoined = false;
  /** Its outcome for the task, and whether it is an error. */
  value: unknown;
  failed = false;
  go: () => void = nothing;

  constructor(task: Task, label: string, kind: StepKind) {
    if (task.steps_made >= STEPS_PER_TASK_MAX) throw new Error(`task ${task.name} has made too many steps`);
    this.identity = task.identity * STEPS_PER_TASK_MAX + task.steps_made++;
    this.task = task;
    this.label = label;
    this.kind = kind;
  }

  /** It may complete in one turn of the event loop with others. Node runs the microtasks after each timer and each pause. */
  get mayJoin(): boolean {
    return this.kind === 'start' || this.kind === 'io';
  }

  /** Its line in a trace; a plus means: in the same turn of the event loop as the line above. */
  toString(): string {
    const line = `${this.isJoined ? '+ ' : ''}${this.task.name}: ${this.label}`;
    if (this.kind === 'timer') return `${line} (timer, at ${this.due_ms} ms)`;
    return this.failed ? `${line} (fails)` : line;
  }
}

/** The outcome of a step as text. Objects have none: `Model.state` must include their content. */
export function outcomeOf(step: Step): string {
  const { value, failed } = step;
  if (failed) return `!${value instanceof Error ? `${value.name} ${value.message}` : textOf(value)}`;
  return value === undefined ? '' : `=${textOf(value)}`;
}

function textOf(value: unknown): string {
  if (typeof value === 'object' && value !== null) return '?';
  return typeof value === 'function' ? '?' : `${typeof value} ${String(value)}`;
}

function nothing(): void {}
