import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { BreakerTable } from './breaker-table.ts';
import { halfOpenProbes } from './half-open.model.ts';

const ONE = { half_open_probes: 1, lookups: 1, probes: 1 };
const TWO = { half_open_probes: 1, lookups: 0, probes: 2 };

for (const init of [ONE, TWO]) {
  test(`a half-open target gets its probes and no more: ${JSON.stringify(init)}`, async (t) => {
    const { schedules } = await assertHolds(halfOpenProbes(BreakerTable, init));
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS = [
  {
    bug: 'the janitor probes without a permit',
    find: 'breaker.tryAcquire() : undefined',
    replace: '{ success: () => undefined, settle: () => undefined } : undefined',
    init: ONE,
    caught: /probes under way/,
  },
  {
    bug: 'a failed probe of the janitor keeps its permit',
    find: "permit.settle(signal.aborted ? 'none' : 'failure');",
    replace: '',
    init: TWO,
    caught: /a probe was lost/,
  },
];

for (const { bug, find, replace, init, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const url = import.meta.resolve('./breaker-table.ts');
    const broken = await mutant<{ BreakerTable: typeof BreakerTable }>(url, find, replace);
    await assertCaught(halfOpenProbes(broken.BreakerTable, init), {}, caught);
  });
}
