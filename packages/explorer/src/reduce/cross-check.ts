/**
 * Whether reductions are sound for a model: explored at a size small enough for a plain run, each must find the same set
 * of endings. A reduction that loses one was misled by a `state` that leaves something out, or by shared data that is not
 * announced with `touch`.
 *
 *     await crossCheck(smallBuild, { hash: true });          // as `explore` does before it reports `complete`
 *     await assertReductionsAgree(smallBuild);               // all reductions, and the endings
 */
import { finish } from '../search/drive.ts';
import { searchInit } from '../search/search-init.ts';
import type { Build, Options } from '../model.ts';
import { Search } from '../search/search.ts';

const REDUCTIONS = [{ hash: true }, { sleepSets: true }, { hash: true, sleepSets: true }] as const;
/** More schedules than this take too long for a check that comes with every exploration. */
const PLAIN_SCHEDULES_MAX = 10_000;

/** Every way in which the model can end: its last `state`, or a failure. */
export async function endings(build: Build, options: Options = {}): Promise<Set<string>> {
  const all = await tryEndings(build, options);
  if (all === undefined) throw new Error(`${nameOf(options)}: too large to list all endings, make it smaller`);
  return all;
}

/** Throws unless `hash`, `sleepSets` and both together find all endings that the plain run finds. The model needs `state`. */
export async function assertReductionsAgree(build: Build, options: Options = {}): Promise<Set<string>> {
  const all = await endings(build, { ...options, hash: false, sleepSets: false });
  for (const reduction of REDUCTIONS) await assertAgrees(build, { ...options, ...reduction }, all);
  return all;
}

/** Throws unless the reductions in `options` find all endings of `smaller` that a plain run finds. */
export async function crossCheck(smaller: Build, options: Options): Promise<void> {
  const { hash, sleepSets, ...rest } = options;
  const all = await tryEndings(smaller, { ...rest, schedules_max: PLAIN_SCHEDULES_MAX });
  if (all === undefined) {
    throw new Error(
      `${nameOf(options)}: a reduction needs a cross-check, and this size has more than ${PLAIN_SCHEDULES_MAX} ` +
        'schedules without it. Pass { smaller }: the same model with fewer tasks or items',
    );
  }
  await assertAgrees(smaller, { ...rest, hash, sleepSets }, all);
}

async function assertAgrees(build: Build, options: Options, all: ReadonlySet<string>): Promise<void> {
  const found = await endings(build, options);
  const lost = all.difference(found);
  if (lost.size === 0 && found.size === all.size) return;
  const how = REDUCTION_NAMES.filter((name) => options[name] === true).join(' and ');
  throw new Error(`${nameOf(options)}: ${how} lost ${lost.size} of ${all.size} endings: ${[...lost].join(' | ')}`);
}

const REDUCTION_NAMES = ['hash', 'sleepSets'] as const;

async function tryEndings(build: Build, options: Options): Promise<Set<string> | undefined> {
  const ways = new Set<string>();
  const search = new Search(build, { ...searchInit(options), onEnd: (ending) => void ways.add(ending) });
  await finish(search);
  return search.exhausted ? ways : undefined;
}

function nameOf(options: Options): string {
  return options.name ?? 'model';
}
