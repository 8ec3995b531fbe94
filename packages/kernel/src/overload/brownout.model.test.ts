import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { brownoutModel, type BrownoutModelInit } from './brownout.model.ts';
import { Brownout } from './brownout.ts';

const MODEL: BrownoutModelInit = { calls: 2, evaluations: 4 };

test('a brownout begins and ends by the calls since the last change, and lasts its dwell time', async (t) => {
  const { schedules } = await assertHolds(brownoutModel(Brownout, MODEL));
  t.diagnostic(`${schedules} schedules`);
});

const MUTANTS = [
  {
    bug: 'errors from before the brownout begin the next one',
    find: 'this.#windows.outcomes.clear();',
    replace: '',
    caught: /only then|in spite of/,
  },
  {
    bug: 'latencies from before the brownout begin the next one',
    find: 'this.#windows.latencies.clear();',
    replace: '',
    caught: /only then|in spite of/,
  },
  {
    bug: 'the dwell time is not kept',
    find: 'if (now_ms - this.#since_ms < dwell_ms) return false;',
    replace: '',
    caught: /before the dwell time/,
  },
  {
    bug: 'no calls count as good calls',
    find: 'if (calls === 0 ||',
    replace: 'if (calls === 0) return true;\n    if (',
    caught: /without calls/,
  },
  {
    bug: 'errors do not hold it',
    find: 'if (calls === 0 || outcomes.covering(ERRORS, now_ms) > errors.leave * calls) return false;',
    replace: '',
    caught: /in spite of a bad call/,
  },
];

for (const { bug, find, replace, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<{ Brownout: typeof Brownout }>(import.meta.resolve('./brownout.ts'), find, replace);
    await assertCaught(brownoutModel(broken.Brownout, MODEL), {}, caught);
  });
}
