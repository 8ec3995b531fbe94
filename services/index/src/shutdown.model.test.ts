import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { WorkQueue } from '@ron/kernel';
import { shutdown, type Shape } from './shutdown.model.ts';

const SMALL: Shape = { producers: 1, resolvers: 1 };

for (const [promise, shape] of [
  ['a stop at any moment: both producers are answered once, and the resolver ends', { producers: 2, resolvers: 1 }],
  ['a stop at any moment: no resolver waits forever', { producers: 1, resolvers: 2 }],
] as const)
  test(promise, async (t) => {
    const smaller = shutdown(WorkQueue, SMALL);
    const { schedules } = await assertHolds(shutdown(WorkQueue, shape), { sleepSets: true, smaller });
    t.diagnostic(`${schedules} schedules`);
  });

const inKernel = (file: string): string => new URL(file, import.meta.resolve('@ron/kernel')).href;
const QUEUE = inKernel('./work/work-queue.ts');

const MUTANTS = [
  {
    bug: 'the stop does not wake a resolver that waits',
    module: inKernel('./work/served-queue.ts'),
    find: 'while (this.workers.size > 0) this.workers.wakeFirst(undefined);\n    this.workers.close();',
    replace: '',
    caught: 'deadlock',
  },
  {
    bug: 'a stopped queue accepts work',
    module: QUEUE,
    find: 'if (this.isClosed) return Promise.reject(this.drainingError());',
    replace: '',
    caught: 'deadlock',
  },
] as const;

for (const { bug, module, find, replace, caught } of MUTANTS)
  test(`caught: ${bug}`, async () => {
    const init = module === QUEUE ? {} : { entry: QUEUE };
    const broken = await mutant<{ WorkQueue: typeof WorkQueue }>(module, find, replace, init);
    await assertCaught(shutdown(broken.WorkQueue, SMALL), {}, caught);
  });
