/**
 * Runs a search to its end.
 *
 * Microtasks can be run by hand only from a macrotask, so a search hops to one, and gives the event loop a turn every
 * quarter second. Each schedule runs synchronously.
 *
 *     const search = new Search(build, searchInit({ hash: true }));
 *     await finish(search);
 *     search.broken ?? search.exhausted;
 */
import { onMacrotask } from '../run/microtasks.ts';
import type { Options } from '../model.ts';
import { releaseRejections, trapRejections } from '../run/rejections.ts';
import type { Search, SearchInit } from './search.ts';

const SLICE_MS = 250;
/** Fewer lags than this leave schedules out. */
const LAGS_DEFAULT = 1;

/** Runs `search` to its end, or until it has taken `steps_max` steps. */
export async function finish(search: Search, steps_max = Infinity): Promise<void> {
  trapRejections();
  try {
    while (!search.isOver && search.steps < steps_max) await onMacrotask(() => search.runFor(SLICE_MS));
  } finally {
    releaseRejections();
  }
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
