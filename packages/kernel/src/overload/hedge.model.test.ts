import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { hedgeModel, type HedgeModelInit } from './hedge.model.ts';
import { Hedge } from './hedge.ts';

const TWO: HedgeModelInit = { attempts_max: 2, budget: 2 };
const THREE: HedgeModelInit = { attempts_max: 3, budget: 1 };
const LEAVES: HedgeModelInit = { attempts_max: 2, budget: 2, leaves: true };
const CLOSES: HedgeModelInit = { attempts_max: 2, budget: 2, closes: true };

for (const model of [TWO, THREE, LEAVES, CLOSES]) {
  test(`the first success wins and the losers are aborted: ${JSON.stringify(model)}`, async (t) => {
    const { schedules } = await assertHolds(hedgeModel(Hedge, model));
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS = [
  {
    bug: 'losers are not aborted',
    find: 'for (const cancel of this.#running) cancel.abort(reason);',
    replace: '',
    model: TWO,
    caught: /a loser was not aborted/,
  },
  {
    bug: 'the first failure fails the call',
    find: 'if (this.#running.size === 0) this.fail',
    replace: 'this.fail',
    model: TWO,
    caught: /failed while an attempt could win|a loser was not aborted/,
  },
  {
    bug: 'the timer goes on after the answer',
    find: 'this.#timer?.cancel();\n    this.#timer = undefined;\n    this.#registration',
    replace: 'this.#isAnswered = false;\n    this.#registration',
    model: LEAVES,
    caught: /began after the answer/,
  },
  {
    bug: 'the budget is ignored',
    find: 'this.#inflight < this.#init.inflight_max && this.#init.budget.trySpend(op)',
    replace: 'true',
    model: THREE,
    caught: /the budget was exceeded/,
  },
  {
    bug: 'attempts are not limited',
    find: 'if (attempts >= attempts_max) return undefined;',
    replace: '',
    model: TWO,
    caught: /too many attempts/,
  },
  {
    bug: 'a failed attempt is not counted as ended',
    find: '(error: unknown) => this.#onFailure(cancel, error),',
    replace: '(error: unknown) => this.fail(error),',
    model: TWO,
    caught: /not tracked|failed while/,
  },
  {
    bug: 'close does not wait for the attempts',
    find: 'if (this.#inflight > 0) await this.#closers.park(signal, undefined);',
    replace: '',
    model: CLOSES,
    caught: /closed while an attempt runs/,
  },
];

for (const { bug, find, replace, model, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<{ Hedge: typeof Hedge }>(import.meta.resolve('./hedge.ts'), find, replace);
    await assertCaught(hedgeModel(broken.Hedge, model), {}, caught);
  });
}
