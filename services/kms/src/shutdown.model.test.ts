import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { Checkpointer } from './audit/checkpointer.ts';
import { AuditTrail } from './audit/trail.ts';
import { shutdown, type Parts } from './shutdown.model.ts';
import { SignQueue } from './sign/sign-queue.ts';

const REAL: Parts = { SignQueue, AuditTrail, Checkpointer };

/** No promise here is about time. */
const TIMELESS = { lags: 0 };

test('a stop at any moment: everybody ends, what was done is in the log, and the last checkpoint covers it', async () => {
  const smaller = shutdown(REAL, 0);
  await assertHolds(shutdown(REAL, 1), { name: 'shutdown', sleepSets: true, smaller, ...TIMELESS });
});

const MUTANTS = [
  {
    bug: 'the signers do not hear of the stop',
    part: 'SignQueue',
    module: import.meta.resolve('./sign/sign-queue.ts'),
    find: 'this.#turns.close();',
    replace: '',
    caught: 'deadlock',
  },
  {
    bug: 'what the appender left behind is not written',
    part: 'AuditTrail',
    module: import.meta.resolve('./audit/trail.ts'),
    find: 'await this.run(NEVER);',
    replace: '',
    caught: 'deadlock',
  },
  {
    bug: 'what is in hand at the end is forgotten',
    part: 'AuditTrail',
    module: import.meta.resolve('./audit/trail.ts'),
    find: 'if (this.#inHand > 0)',
    replace: 'if (false)',
    caught: /what was done is in the log/,
  },
] as const;

for (const { bug, part, module, find, replace, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<Parts>(module, find, replace);
    await assertCaught(shutdown({ ...REAL, [part]: broken[part] }, 1), TIMELESS, caught);
  });
}
