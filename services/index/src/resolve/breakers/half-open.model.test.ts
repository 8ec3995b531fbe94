import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { BreakerTable } from './breaker-table.ts';
import { halfOpenProbes } from './half-open.model.ts';

const ONE = { half_open_probes: 1, lookups: 2 };
const TWO = { half_open_probes: 2, lookups: 2 };

for (const init of [ONE, TWO]) {
  test(`a half-open target gets its probes and no more: ${JSON.stringify(init)}`, async (t) => {
    const { schedules } = await assertHolds(halfOpenProbes(BreakerTable, init));
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS = [
  {
    bug: 'a request goes out without a permit',
    find: 'return this.of(target).tryAcquire();',
    replace: 'return this.of(target).tryAcquire() ?? { settle: () => undefined };',
    init: ONE,
    caught: /probes under way/,
  },
  {
    bug: 'the configured number of probes is not passed on',
    find: '      half_open_probes,\n',
    replace: '      half_open_probes: half_open_probes + 1,\n',
    init: ONE,
    caught: /probes under way/,
  },
];

for (const { bug, find, replace, init, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const url = import.meta.resolve('./breaker-table.ts');
    const broken = await mutant<{ BreakerTable: typeof BreakerTable }>(url, find, replace);
    await assertCaught(halfOpenProbes(broken.BreakerTable, init), {}, caught);
  });
}
