import { test } from 'node:test';
import { assertCaught, assertHoldsWithin, mutant } from '@ron/explorer';
import { BatchQueue } from '@ron/kernel';
import { Checkpointer } from './audit/checkpointer.ts';
import { AuditTrail } from './audit/trail.ts';
import { shutdown, type Parts } from './shutdown.model.ts';

const REAL: Parts = { BatchQueue, AuditTrail, Checkpointer };

/** No property here depends on time. */
const TIMELESS = { lags: 0 };

test('a stop at any moment: every task ends, completed work is in the log, and the last checkpoint covers it', async (t) => {
  const smaller = shutdown(REAL, 0);
  await assertHoldsWithin(t, shutdown(REAL, 1), { name: 'shutdown', sleepSets: true, smaller, ...TIMELESS });
});

const inKernel = (file: string): string => new URL(file, import.meta.resolve('@ron/kernel')).href;

const MUTANTS = [
  {
    bug: 'the stop does not wake the signers',
    part: 'BatchQueue',
    module: inKernel('./work/served-queue.ts'),
    entry: inKernel('./fair/batch-queue.ts'),
    find: 'while (this.workers.size > 0) this.workers.wakeFirst(undefined);\n    this.workers.close();',
    replace: '',
    caught: 'deadlock',
  },
  {
    bug: 'events that the appender left in the queue are not written',
    part: 'AuditTrail',
    module: import.meta.resolve('./audit/trail.ts'),
    find: 'await this.run(NEVER);',
    replace: '',
    caught: 'deadlock',
  },
  {
    bug: 'pending operations are not recorded at the end',
    part: 'AuditTrail',
    module: import.meta.resolve('./audit/trail.ts'),
    find: 'if (this.#pending > 0)',
    replace: 'if (false)',
    caught: /completed work is in the log/,
  },
] as const;

for (const { bug, part, module, find, replace, caught, ...init } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<Parts>(module, find, replace, init);
    await assertCaught(shutdown({ ...REAL, [part]: broken[part] }, 1), TIMELESS, caught);
  });
}
