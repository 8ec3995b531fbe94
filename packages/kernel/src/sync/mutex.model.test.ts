import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { mutexModel, type MutexModelInit } from './mutex.model.ts';
import { Mutex } from './mutex.ts';

const MODELS: readonly MutexModelInit[] = [
  { callers: 3, waiters_max: 2 },
  { callers: 3, waiters_max: 1 },
  { callers: 3, waiters_max: 2, leaves: true },
  { callers: 2, waiters_max: 1, closes: true },
];

for (const model of MODELS) {
  test(`sections never overlap and run in the order of arrival: ${JSON.stringify(model)}`, async () => {
    await assertHolds(mutexModel(Mutex, model));
  });
}

const MUTANTS = [
  {
    bug: 'a caller that is aborted after the hand-over begins its section',
    find: 'signal.throwIfAborted();\n      return await section();',
    replace: 'return await section();',
    model: MODELS[2]!,
    caught: /a section began for an aborted caller/,
  },
  {
    bug: 'the mutex is free before it is handed over',
    find: 'if (this.#waiters.size > 0) return this.#waiters.wakeFirst();',
    replace: 'this.#isHeld = false; if (this.#waiters.size > 0) return this.#waiters.wakeFirst();',
    model: MODELS[0]!,
    caught: /two sections overlap|no caller overtakes/,
  },
  {
    bug: 'a section that ends wakes no waiter',
    find: 'if (this.#waiters.size > 0) return this.#waiters.wakeFirst();',
    replace: '',
    model: MODELS[0]!,
    caught: 'deadlock' as const,
  },
  {
    bug: 'close does not wait',
    find: 'if (!this.#isHeld) return this.#waiters.close();',
    replace: 'return;',
    model: MODELS[3]!,
    caught: /close resolved while|after close resolved/,
  },
  {
    bug: 'the mutex is not taken',
    find: 'this.#isHeld = true;',
    replace: '',
    model: MODELS[0]!,
    caught: /two sections overlap/,
  },
];

for (const { bug, find, replace, model, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<{ Mutex: typeof Mutex }>(import.meta.resolve('./mutex.ts'), find, replace);
    await assertCaught(mutexModel(broken.Mutex, model), {}, caught);
  });
}
