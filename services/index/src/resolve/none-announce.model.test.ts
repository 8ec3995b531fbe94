import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { Publisher } from '../publish/publisher.ts';
import { AnswerCache } from './cache/answer-cache.ts';
import { noneAgainstAnnounce, type Parts } from './lookup-change.model.ts';
import { Lookups } from './lookups.ts';
import { Resolver } from './resolver.ts';

const PARTS: Parts = { Lookups, Resolver, AnswerCache, Publisher };

for (const init of [
  { by: 'address', cached: false, microtasks_max: 8 },
  { by: 'address', cached: true },
  { by: 'name', cached: false },
] as const) {
  test(`"none" is neither served nor cached once an announcement is acknowledged: ${JSON.stringify(init)}`, async (t) => {
    const { schedules } = await assertHolds(noneAgainstAnnounce(PARTS, init));
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS = [
  {
    bug: 'a caller joins a lookup whose data changed',
    module: './lookups.ts',
    find: 'if (this.#running.get(key)?.stamp.isCurrent === false) this.#flights.detach(key);',
    replace: '',
    by: 'address',
  },
  {
    bug: 'the lookup of a name does not depend on its object',
    module: './resolver.ts',
    find: 'lookup.stamp.add(address);',
    replace: '',
    by: 'name',
  },
  {
    bug: 'an announcement leaves the versions as they are',
    module: './cache/answer-cache.ts',
    find: 'versions.bump(target);',
    replace: '',
    by: 'address',
  },
  {
    bug: 'a caller joins a lookup that has ended and whose data changed',
    module: './lookups.ts',
    find: 'this.#running.delete(key);\n    this.#flights.detach(key);',
    replace: 'this.#running.delete(key);',
    by: 'address',
  },
] as const;

for (const { bug, module, find, replace, by } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<Partial<Parts>>(import.meta.resolve(module), find, replace);
    const model = noneAgainstAnnounce({ ...PARTS, ...broken }, { by, cached: false, microtasks_max: 8 });
    await assertCaught(model, {}, /from before an acknowledged change/);
  });
}
