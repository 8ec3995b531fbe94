import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { turnBudgetModel, type TurnBudgetModelInit } from './turn-budget.model.ts';
import { TurnBudget } from './turn-budget.ts';

const MODELS: readonly TurnBudgetModelInit[] = [
  { units: [1, 1, 1], units_max: 1 },
  { units: [2, 1, 1], units_max: 2 },
  { units: [1, 1, 1], units_max: 1, leaves: true },
];

for (const model of MODELS) {
  test(`each caller has a turn, in the order of arrival: ${JSON.stringify(model)}`, async () => {
    await assertHolds(turnBudgetModel(TurnBudget, model));
  });
}

const MUTANTS = [
  {
    bug: 'a renewal that wakes a waiter is the last one',
    find: 'this.#waiters.wakeFirst();\n      this.#use(units);',
    replace: 'this.#waiters.wakeFirst();\n      void units;\n      break;',
    model: { units: [1, 1, 1, 1], units_max: 1 },
    caught: 'deadlock' as const,
  },
  {
    bug: 'a renewal wakes no waiter',
    find: 'this.#waiters.wakeFirst();',
    replace: 'return;',
    model: MODELS[0]!,
    caught: 'deadlock' as const,
  },
  {
    bug: 'a renewal is not repeated while callers wait',
    find: '    this.#isRenewing = false;\n',
    replace: '',
    model: MODELS[0]!,
    caught: 'deadlock' as const,
  },
];

for (const { bug, find, replace, model, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const { TurnBudget: Mutant } = await mutant<{ TurnBudget: typeof TurnBudget }>(
      import.meta.resolve('./turn-budget.ts'),
      find,
      replace,
    );
    await assertCaught(turnBudgetModel(Mutant, model), {}, caught);
  });
}
