import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { Publisher } from '../publish/publisher.ts';
import { AnswerCache } from './cache/answer-cache.ts';
import { publishAgainstResolve, type Parts } from './lookup-change.model.ts';
import { Lookups } from './lookups.ts';
import { Resolver } from './resolver.ts';

const PARTS: Parts = { Lookups, Resolver, AnswerCache, Publisher };
const INIT = { cached: false };

test('no caller gets the old address of a name once its new record is acknowledged', async (t) => {
  const { schedules } = await assertHolds(publishAgainstResolve(PARTS, INIT));
  t.diagnostic(`${schedules} schedules`);
});

const MUTANTS = [
  {
    bug: 'the publisher acknowledges without outdating lookups',
    module: '../publish/publisher.ts',
    find: 'invalidate(changes);\n    }',
    replace: '}',
  },
] as const;

for (const { bug, module, find, replace } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<Partial<Parts>>(import.meta.resolve(module), find, replace);
    await assertCaught(publishAgainstResolve({ ...PARTS, ...broken }, INIT), {}, /from before an acknowledged change/);
  });
}
