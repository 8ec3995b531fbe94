/**
 * The options of an exploration with their defaults, and which of them leave schedules out.
 *
 *     const init = searchInit({ lags: 0 });
 *     boundsOf(init);                  // ['lags: 0']
 */
import type { Options } from '../model.ts';

/** Fewer lags than this leave schedules out. */
const LAGS_DEFAULT = 1;

export interface SearchInit {
  readonly preemptions_max: number;
  readonly hash: boolean;
  readonly sleepSets: boolean;
  readonly steps_max: number;
  readonly lags_max: number;
  readonly delayed: boolean;
  readonly turn_max: number;
  readonly schedules_max: number;
  /** Choices to make instead of searching, by position; missing ones are 0. */
  readonly script?: ReadonlyMap<number, number>;
  /** Called with the end of each schedule that is not cut. Then a failure is just another end, and the search goes on. */
  readonly onEnd?: (outcome: string) => void;
}

export function searchInit(options: Options): SearchInit {
  if (options.sleepSets === true && options.preemptions !== undefined) {
    throw new Error('sleepSets and preemptions exclude each other: the schedule kept may have more preemptions');
  }
  return {
    preemptions_max: options.preemptions ?? Infinity,
    hash: options.hash ?? false,
    sleepSets: options.sleepSets ?? false,
    steps_max: options.steps_max ?? 1000,
    lags_max: options.lags ?? LAGS_DEFAULT,
    delayed: options.delayed ?? true,
    turn_max: options.turn_max ?? Infinity,
    schedules_max: options.schedules_max ?? 1_000_000,
  };
}

/**
 * The options that leave schedules out. `steps_max` is none of them: a schedule that reaches it is a failure. Nor is
 * `schedules_max`: a search that reaches it is not exhausted.
 */
export function boundsOf({ lags_max, delayed, turn_max, preemptions_max }: SearchInit): string[] {
  const bounds: string[] = [];
  if (lags_max < LAGS_DEFAULT) bounds.push(`lags: ${lags_max}`);
  if (!delayed) bounds.push('delayed: false');
  if (turn_max !== Infinity) bounds.push(`turn_max: ${turn_max}`);
  if (preemptions_max !== Infinity) bounds.push(`preemptions: ${preemptions_max}`);
  return bounds;
}
