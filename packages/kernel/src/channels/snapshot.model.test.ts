import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { configSwap } from './snapshot.model.ts';
import { Snapshot } from './snapshot.ts';
import { Watch } from './watch.ts';

const SMALL = { swaps: 1, readers: 1 };

test('a reader has the old config or the new one, never a mixture, and a reader that is notified of a swap finds it', async () => {
  await assertHolds(configSwap(Snapshot, Watch, { swaps: 2, readers: 1 }));
  const smaller = configSwap(Snapshot, Watch, SMALL);
  await assertHolds(configSwap(Snapshot, Watch, { swaps: 2, readers: 2 }), { hash: true, smaller });
});

const MUTANTS = [
  {
    bug: 'swap writes into the value that readers hold',
    find: 'this.#current = next;\n    this.#version += 1;',
    replace: 'this.#current = Object.assign(this.#current as object, next) as S;\n    this.#version += 1;',
    caught: 'task',
  },
  {
    bug: 'swap counts and keeps the old value',
    find: 'this.#current = next;\n    this.#version += 1;',
    replace: 'this.#version += 1;',
    caught: 'task',
  },
] as const;

for (const { bug, find, replace, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<{ Snapshot: typeof Snapshot }>(import.meta.resolve('./snapshot.ts'), find, replace);
    await assertCaught(configSwap(broken.Snapshot, Watch, SMALL), {}, caught);
  });
}
