/** Models, the options of an exploration, and its result. */

/** The hands of a model: it adds tasks, completes I/O and makes nondeterministic choices. */
export interface World {
  /** Adds a task; when it starts is a choice. The schedule fails if it rejects, or is left blocked and not a daemon. */
  task(name: string, run: () => Promise<void>, init?: TaskInit): void;
  /** An I/O operation: when it completes is a choice. */
  io(label: string): Promise<void>;
  /** An outcome that the model does not control. Every value is explored. */
  choose<T>(label: string, values: readonly T[]): T;
  /** The virtual clock, which starts at 0. Reading it in a model does not let time pass. */
  now_ms(): number;
  /** How many turns of the event loop have begun. Within one, microtasks of several tasks may interleave. */
  turns(): number;
  /** A timer is due and has not fired: until it does, its effect may be overdue. */
  isLagging(): boolean;
}

export interface TaskInit {
  /** A daemon may be blocked at the end of a schedule. Default false. */
  daemon?: boolean;
}

/** The conditions of a model. All three are called between steps, never inside one. */
export interface Model {
  /** All data that affects later steps, apart from the positions of tasks. Needed for `hash`. */
  state?(): string;
  /** Throws when something is wrong. Called after every step. */
  invariant?(): void;
  /** Throws when something is wrong. Called when every task has ended. */
  final?(): void;
}

/** Makes a fresh model: it may keep nothing from an earlier call. */
export type Build = (world: World) => Model;

export interface Options {
  /** Named in messages. Default 'model'. */
  name?: string;
  /** At most this many switches away from a task that could have gone on. Default: no bound. Never complete. */
  preemptions?: number;
  /** Cut a schedule that reaches a state seen before. Needs `Model.state` and `smaller`. Default false. */
  hash?: boolean | undefined;
  /** Cut schedules that only swap steps which touch different kernel objects. Not with `preemptions`. Default false. */
  sleepSets?: boolean | undefined;
  /**
   * The same model at a size that can be explored without `hash` and `sleepSets`: they must find all of its endings
   * before the result is complete. Default: the model itself, which is refused if it is too large for that.
   */
  smaller?: Build;
  /** How often per schedule time passes while code runs, so that timers fire late. Default 1. */
  lags?: number;
  /** Whether schedules with delayed wake-ups are explored too, which Node does not produce. Default true. */
  delayed?: boolean;
  /** How many I/O operations and starts may complete in one turn of the event loop. Default: any number. */
  turn_max?: number;
  /** A schedule longer than this is a livelock. Default 1000. */
  steps_max?: number;
  /** Give up, incomplete, after this many schedules. Default 1 000 000. */
  schedules_max?: number;
}

export type FailureKind = 'deadlock' | 'livelock' | 'invariant' | 'final' | 'task' | 'nondeterminism';

export interface Failure {
  readonly kind: FailureKind;
  readonly error: unknown;
  /** One line a step: `task: label`. */
  readonly trace: readonly string[];
  /** `replay` takes it. */
  readonly seed: string;
  /** Switches away from a task that could have gone on. No failure of this kind has fewer, unless `minimal` is false. */
  readonly preemptions: number;
  readonly minimal: boolean;
}

export interface Result {
  /** Schedules run to their end. */
  readonly schedules: number;
  /** Steps executed, those of repeated prefixes included. */
  readonly steps: number;
  /** Schedules cut because a reduction showed them to be covered. */
  readonly pruned: number;
  /** Every schedule is covered: no failure, no bound, nothing given up. */
  readonly complete: boolean;
  /** Every schedule within `bounds` is covered and none fails. The same as `complete` when there are no bounds. */
  readonly holds: boolean;
  /** The options that left schedules out, as in `lags: 0`. */
  readonly bounds: readonly string[];
  /** Length of the longest schedule. */
  readonly depth_max: number;
  readonly failure?: Failure;
}
