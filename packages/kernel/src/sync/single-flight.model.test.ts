import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { singleFlightModel, type SingleFlightModelInit } from './single-flight.model.ts';
import { SingleFlight } from './single-flight.ts';

const SHARED: SingleFlightModelInit = { callers: 3, leavers: 0, outlives: false };
const LEAVES: SingleFlightModelInit = { callers: 2, leavers: 1, outlives: false };
const ALL_LEAVE: SingleFlightModelInit = { callers: 2, leavers: 2, outlives: false };
const OUTLIVES: SingleFlightModelInit = { callers: 2, leavers: 1, outlives: true };
const OUTLIVES_AND_CLOSES: SingleFlightModelInit = { callers: 1, leavers: 0, outlives: true, closes: true };
const CLOSES: SingleFlightModelInit = { callers: 2, leavers: 0, outlives: false, closes: true };

for (const model of [SHARED, LEAVES, ALL_LEAVE, OUTLIVES, OUTLIVES_AND_CLOSES, CLOSES]) {
  test(`concurrent calls share one run: ${JSON.stringify(model)}`, async (t) => {
    const { schedules } = await assertHolds(singleFlightModel(SingleFlight, model));
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS = [
  {
    bug: 'every caller starts a run',
    find: 'const known = this.#joinable.get(key);',
    replace: 'const known = undefined as Run<T> | undefined;',
    model: SHARED,
    caught: /two runs of one key/,
  },
  {
    bug: 'the first caller that leaves aborts the run',
    find: 'if (run.callers.size > 0 || run.deadline !== undefined) return;',
    replace: 'if (run.deadline !== undefined) return;',
    model: LEAVES,
    caught: /aborted under a waiting caller|sent away/,
  },
  {
    bug: 'a caller joins an aborted run',
    find: 'this.#detach(run);\n    run.abort(reason);',
    replace: 'run.abort(reason);',
    model: LEAVES,
    caught: /could not join/,
  },
  {
    bug: 'a run that may outlive its callers is aborted with the last of them',
    find: 'if (run.callers.size > 0 || run.deadline !== undefined) return;',
    replace: 'if (run.callers.size > 0) return;',
    model: OUTLIVES,
    caught: /aborted too early/,
  },
  {
    bug: 'a run whose deadline was over before it began is counted permanently',
    find: 'if (!hasBegun) this.#onEnd(run);',
    replace: '',
    model: OUTLIVES,
    caught: /a run is still counted/,
  },
  {
    bug: 'close waits for a run that never began',
    find: 'if (!hasBegun) this.#onEnd(run);',
    replace: '',
    model: OUTLIVES_AND_CLOSES,
    caught: 'deadlock' as const,
  },
  {
    bug: 'close does not wait for the runs',
    find: 'if (this.#runs.size > 0) await this.#closers.park(signal, undefined);',
    replace: '',
    model: CLOSES,
    caught: /close resolved while a run/,
  },
  {
    bug: 'a caller that joined gets no answer',
    find: 'for (const { parked, registration } of this.callers) {',
    replace: 'for (const { parked, registration } of [...this.callers].slice(0, 1)) {',
    model: SHARED,
    caught: 'deadlock' as const,
  },
];

for (const { bug, find, replace, model, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const url = import.meta.resolve('./single-flight.ts');
    const broken = await mutant<{ SingleFlight: typeof SingleFlight }>(url, find, replace);
    await assertCaught(singleFlightModel(broken.SingleFlight, model), {}, caught);
  });
}
