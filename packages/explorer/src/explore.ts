/**
 * `explore` runs a model under every schedule; `replay` runs the one that a seed names.
 *
 * Both hop to a macrotask first, because microtasks can be run by hand only there, and give the event loop a turn every
 * quarter second. So they return promises; the exploration itself is synchronous.
 */
import { onMacrotask } from './microtasks.ts';
import type { Build, Failure, Options, Result } from './model.ts';
import { decodeSeed, encodeSeed, fingerprint } from './seed.ts';
import { Search, type Broken, type SearchInit } from './search.ts';

const SLICE_MS = 250;
/** Looking for a smaller failure costs at most this. */
const SHRINK_STEPS_MAX = 1_000_000;

/** Runs `build`'s model under every schedule, or until one fails. */
export async function explore(build: Build, options: Options = {}): Promise<Result> {
  const init = searchInit(options);
  const search = new Search(build, init);
  await finish(search);
  const failure = search.broken === undefined ? undefined : await shrink(build, init, search.broken);
  return toResult(search, init, failure);
}

/** Runs the one schedule that `seed` names. Throws when the model is not the one that the seed was printed for. */
export async function replay(build: Build, seed: string, options: Options = {}): Promise<Result> {
  const { kind, trace_length, choices, fingerprint: expected } = decodeSeed(seed);
  const steps_max = kind === 'livelock' ? trace_length : searchInit(options).steps_max;
  const init: SearchInit = { ...searchInit({}), steps_max, script: choices };
  const search = new Search(build, init);
  await finish(search);
  if (search.offScript || fingerprint(search.trace().slice(0, trace_length)) !== expected) {
    throw new Error(
      `the seed '${seed}' does not fit ${options.name ?? 'this model'}: the model, or the code that it runs, has ` +
        'changed since the seed was printed. Explore again.',
    );
  }
  return toResult(search, init, search.broken && toFailure(search.broken, true));
}

/** Whatever the search found, looked for again with as few switches between tasks as possible. */
async function shrink(build: Build, init: SearchInit, found: Broken): Promise<Failure> {
  let steps_left = SHRINK_STEPS_MAX;
  for (let preemptions_max = 0; preemptions_max < found.preemptions; preemptions_max++) {
    const search = new Search(build, { ...init, preemptions_max, sleepSets: false });
    await finish(search, steps_left);
    if (search.broken?.kind === found.kind) return toFailure(search.broken, true);
    if (!search.exhausted) return toFailure(found, false);
    steps_left -= search.steps;
  }
  return toFailure(found, true);
}

async function finish(search: Search, steps_max = Infinity): Promise<void> {
  while (!search.isOver && search.steps < steps_max) await onMacrotask(() => search.runFor(SLICE_MS));
}

function searchInit(options: Options): SearchInit {
  if (options.sleepSets === true && options.preemptions !== undefined) {
    throw new Error('sleepSets and preemptions cannot be combined: the schedule kept may be the one with more switches');
  }
  return {
    preemptions_max: options.preemptions ?? Infinity,
    hash: options.hash ?? false,
    sleepSets: options.sleepSets ?? false,
    steps_max: options.steps_max ?? 1000,
    schedules_max: options.schedules_max ?? 1_000_000,
  };
}

function toFailure(broken: Broken, minimal: boolean): Failure {
  const { kind, error, trace, choices, preemptions } = broken;
  return { kind, error, trace, seed: encodeSeed(kind, trace, choices), preemptions, minimal };
}

function toResult(search: Search, init: SearchInit, failure: Failure | undefined): Result {
  const { schedules, steps, pruned, depth_max } = search;
  const complete = failure === undefined && search.exhausted && init.preemptions_max === Infinity;
  return { schedules, steps, pruned, complete, depth_max, ...(failure && { failure }) };
}
