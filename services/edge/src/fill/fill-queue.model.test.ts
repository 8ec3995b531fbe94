import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { WorkQueue } from '@ron/kernel';
import { fillQueue, type QueueShape } from './fill-queue.model.ts';

test('a stop at any moment: every fill is answered once, at most two are drained, and the worker ends', async (t) => {
  const smaller = fillQueue(WorkQueue, { fills: 1, stops: true });
  const { schedules } = await assertHolds(fillQueue(WorkQueue, { fills: 3, stops: true }), {
    sleepSets: true,
    smaller,
  });
  t.diagnostic(`${schedules} schedules`);
});

test('every fill is answered once, and every accepted one is served', async (t) => {
  const { schedules } = await assertHolds(fillQueue(WorkQueue, { fills: 4, stops: false }));
  t.diagnostic(`${schedules} schedules`);
});

const MUTANTS: readonly {
  readonly bug: string;
  readonly find: string;
  readonly replace: string;
  readonly shape: QueueShape;
  readonly caught: 'deadlock' | RegExp;
}[] = [
  {
    bug: 'a stopped queue accepts fills',
    find: 'if (this.isClosed) return Promise.reject(this.drainingError());',
    replace: '',
    shape: { fills: 1, stops: true },
    caught: 'deadlock',
  },
  {
    bug: 'a full queue grows',
    find: 'if (!this.#lanes.hasRoom(into)',
    replace: 'if (false && !this.#lanes.hasRoom(into)',
    shape: { fills: 4, stops: false },
    caught: /checks for room before it pushes/,
  },
];

for (const { bug, find, replace, shape, caught } of MUTANTS)
  test(`the model catches: ${bug}`, async () => {
    const module = new URL('./work/work-queue.ts', import.meta.resolve('@ron/kernel')).href;
    const broken = await mutant<{ WorkQueue: typeof WorkQueue }>(module, find, replace);
    await assertCaught(fillQueue(broken.WorkQueue, shape), {}, caught);
  });
