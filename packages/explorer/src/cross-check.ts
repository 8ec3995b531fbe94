/**
 * Whether reductions are sound for a model: explored at a size small enough for a plain run, each must find the very
 * same set of endings. A reduction that loses one was misled, by a `state` that leaves something out or by shared data
 * that is not `touch`ed.
 */
import { finish, searchInit } from './explore.ts';
import type { Build, Options } from './model.ts';
import { Search } from './search.ts';

const REDUCTIONS = [{ hash: true }, { sleepSets: true }, { hash: true, sleepSets: true }] as const;

/** Every way in which the model can end: its last `state`, or a failure. */
export async function endings(build: Build, options: Options = {}): Promise<Set<string>> {
  const ways = new Set<string>();
  const search = new Search(build, { ...searchInit(options), onEnd: (ending) => void ways.add(ending) });
  await finish(search);
  if (!search.exhausted) throw new Error(`${options.name ?? 'model'}: too large to list all endings, make it smaller`);
  return ways;
}

/** Throws unless `hash`, `sleepSets` and both together find all endings that the plain run finds. The model needs `state`. */
export async function assertReductionsAgree(build: Build, options: Options = {}): Promise<Set<string>> {
  const all = await endings(build, options);
  for (const reduction of REDUCTIONS) {
    const found = await endings(build, { ...options, ...reduction });
    const lost = all.difference(found);
    if (lost.size > 0 || found.size > all.size) {
      const how = Object.keys(reduction).join(' and ');
      throw new Error(
        `${options.name ?? 'model'}: ${how} lost ${lost.size} of ${all.size} endings: ${[...lost].join(' | ')}`,
      );
    }
  }
  return all;
}
