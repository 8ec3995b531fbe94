import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { inTurn, type InTurnModelInit } from './in-turn.model.ts';
import { InTurn } from './in-turn.ts';

const MODELS: readonly InTurnModelInit[] = [
  { callers: 3, waiting_max: 2 },
  { callers: 3, waiting_max: 1 },
  { callers: 3, waiting_max: 2, leaves: true },
  { callers: 2, waiting_max: 1, closes: true },
];

for (const model of MODELS) {
  test(`works never overlap and nobody overtakes: ${JSON.stringify(model)}`, async () => {
    await assertHolds(inTurn(InTurn, model));
  });
}

const MUTANTS = [
  {
    bug: 'a turn that ends is free before it is handed over',
    find: 'if (this.#waiting.size > 0) return this.#waiting.wakeFirst();',
    replace: 'this.#isTaken = false; if (this.#waiting.size > 0) return this.#waiting.wakeFirst();',
    model: MODELS[0]!,
    caught: /two works at once|nobody overtakes/,
  },
  {
    bug: 'a turn that ends wakes nobody',
    find: 'if (this.#waiting.size > 0) return this.#waiting.wakeFirst();',
    replace: '',
    model: MODELS[0]!,
    caught: 'deadlock' as const,
  },
  {
    bug: 'closing does not wait',
    find: 'if (!this.#isTaken) return this.#waiting.close();',
    replace: 'return;',
    model: MODELS[3]!,
    caught: /closed while|after the end/,
  },
  {
    bug: 'a turn is not taken',
    find: 'this.#isTaken = true;',
    replace: '',
    model: MODELS[0]!,
    caught: /two works at once/,
  },
];

for (const { bug, find, replace, model, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<{ InTurn: typeof InTurn }>(import.meta.resolve('./in-turn.ts'), find, replace);
    await assertCaught(inTurn(broken.InTurn, model), {}, caught);
  });
}
