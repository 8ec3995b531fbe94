/**
 * `explore` runs a model under every schedule; `replay` runs the one that a seed names.
 *
 * Contract: `complete` means that every schedule was run, or is covered by a reduction that found every ending of a
 * smaller model. `holds` means the same within `bounds`, the options that leave schedules out. Bound: `schedules_max` schedules of `steps_max` steps. Both functions return promises, see `drive.ts`.
 *
 *     const result = await explore(build, { hash: true, smaller: buildWithTwoTasks });
 *     if (result.failure) await replay(build, result.failure.seed);
 */
import { crossCheck } from './reduce/cross-check.ts';
import { finish } from './search/drive.ts';
import { boundsOf, searchInit, type SearchInit } from './search/search-init.ts';
import type { Build, Failure, Options, Result } from './model.ts';
import { decodeSeed, encodeSeed, fingerprint } from './seed.ts';
import { messageOf, Search, type Broken } from './search/search.ts';

/** Looking for a smaller failure costs at most this. */
const SHRINK_STEPS_MAX = 1_000_000;

/** Runs the model under every schedule, or until one fails. */
export async function explore(build: Build, options: Options = {}): Promise<Result> {
  const init = searchInit(options);
  const search = new Search(build, init);
  await finish(search);
  const failure = search.broken === undefined ? undefined : await shrink(build, init, search.broken);
  const result = toResult(search, init, failure);
  // A failure stands by itself: it was confirmed without reductions.
  if (result.holds && (init.hash || init.sleepSets)) await crossCheck(options.smaller ?? build, options);
  return result;
}

/** Runs the one schedule that `seed` names. Throws when the model is not the one that the seed was printed for. */
export async function replay(build: Build, seed: string, options: Options = {}): Promise<Result> {
  const { kind, steps, choices, fingerprint: expected } = decodeSeed(seed);
  const { steps_max, lags_max } = searchInit(options);
  const init = { ...searchInit({}), lags_max, steps_max: kind === 'livelock' ? steps : steps_max, script: choices };
  const search = new Search(build, init);
  await finish(search);
  if (fingerprint(search.trace(steps)) !== expected) {
    throw new Error(
      `the seed '${seed}' does not fit ${options.name ?? 'this model'}: the model, or the code that it runs, has ` +
        'changed since the seed was printed. Explore again.',
    );
  }
  return toResult(search, init, search.broken && toFailure(search.broken, false));
}

/** The failure that was found, or one of its kind with as few preemptions as can be. */
async function shrink(build: Build, init: SearchInit, found: Broken): Promise<Failure> {
  if (found.kind === 'nondeterminism') return toFailure(found, false);
  let steps_left = SHRINK_STEPS_MAX;
  for (let preemptions_max = 0; preemptions_max < found.preemptions; preemptions_max++) {
    const search = new Search(build, { ...init, preemptions_max, sleepSets: false, schedules_max: Infinity });
    await finish(search, steps_left);
    if (search.broken?.kind === found.kind) return confirm(build, init, toFailure(search.broken, true));
    if (!search.exhausted) return confirm(build, init, toFailure(found, false));
    steps_left -= search.steps;
  }
  return confirm(build, init, toFailure(found, true));
}

/** A failure that does not happen again under the same choices is one of the model. */
async function confirm(build: Build, init: SearchInit, failure: Failure): Promise<Failure> {
  const { choices } = decodeSeed(failure.seed);
  const search = new Search(build, {
    ...init,
    preemptions_max: Infinity,
    hash: false,
    sleepSets: false,
    script: choices,
  });
  await finish(search);
  if (search.broken?.kind === failure.kind && search.broken.trace.join() === failure.trace.join()) return failure;
  const message = `${failure.kind}: ${messageOf(failure.error)}; but not when the same choices were made again`;
  return { ...failure, kind: 'nondeterminism', error: new Error(message, { cause: failure.error }), minimal: false };
}

function toFailure(broken: Broken, minimal: boolean): Failure {
  const { kind, error, steps, trace, choices, preemptions } = broken;
  return { kind, error, trace, seed: encodeSeed(kind, steps, trace, choices), preemptions, minimal };
}

function toResult(search: Search, init: SearchInit, failure: Failure | undefined): Result {
  const { schedules, steps, pruned, depth_max } = search;
  const bounds = boundsOf(init);
  const holds = failure === undefined && search.exhausted && init.script === undefined;
  const complete = holds && bounds.length === 0;
  return { schedules, steps, pruned, complete, holds, bounds, depth_max, ...(failure && { failure }) };
}
