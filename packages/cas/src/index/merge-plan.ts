/**
 * Decides which runs are merged next: size-tiered, with a fan-out of `FAN_OUT`.
 *
 * Contract: always the newest runs, so that the age of entries stays in order. After the planned merges there are at most
 * `FAN_OUT - 1` runs of each tier. Runs that consist in large part of entries which only hide others are all merged,
 * since only that drops them.
 */
import type { Run } from './run-file.ts';

const FAN_OUT = 4;
/** Runs of fewer entries are one tier: merging them costs a millisecond or two. */
const SMALL_ENTRIES = 1024;
/** Writes wait for a merge at this many runs. */
export const RUNS_MAX = 32;
const RUNS_GOOD = 16;
const NONE_MIN = 1024;

type Sized = Pick<Run, 'count' | 'footer'>;

const tierOf = (count: number): number =>
  count <= SMALL_ENTRIES ? 0 : Math.ceil(Math.log(count / SMALL_ENTRIES) / Math.log(FAN_OUT));

/** How many of the runs, which are ordered from newest to oldest, are to be merged into one; 0: none. */
export function planMerge(runs: readonly Sized[]): number {
  const none = runs.reduce((sum, run) => sum + run.footer.none, 0);
  const count = runs.reduce((sum, run) => sum + run.count, 0);
  if (none >= NONE_MIN && none * 4 > count) return runs.length;
  const tiers = runs.map((run) => tierOf(run.count));
  for (let tier = 0; tier <= Math.max(...tiers); tier++) {
    const end = tiers.findIndex((each) => each > tier);
    const newest = end < 0 ? tiers : tiers.slice(0, end);
    if (newest.filter((each) => each === tier).length >= FAN_OUT) return newest.length;
  }
  return runs.length > RUNS_GOOD ? runs.length - FAN_OUT : 0;
}
