import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { signBatches } from './sign-batches.model.ts';
import { SignBatches } from './signer.ts';

const SIGNER = import.meta.resolve('./signer.ts');

test('every message is answered once, with its own signature, and of one key one call is under way', async () => {
  await assertHolds(signBatches(SignBatches, { rounds: [['a', 'b'], ['c']], mayFail: false }), { name: 'batches' });
  await assertHolds(signBatches(SignBatches, { rounds: [['a'], ['b']], mayFail: true }), { name: 'failing calls' });
});

const MUTANTS = [
  {
    bug: 'what came during a call is forgotten',
    find: 'while (line.waiting.length > 0)',
    replace: 'if (line.waiting.length > 0)',
    caught: 'deadlock',
  },
  { bug: 'a key is used twice at the same time', find: 'if (!line.isBusy) void', replace: 'void', caught: /under way/ },
  {
    bug: 'an error is told to the first only',
    find: 'for (const waiting of batch) waiting.answer.fail(error);',
    replace: 'batch[0]!.answer.fail(error);',
    caught: 'deadlock',
  },
] as const;

for (const { bug, find, replace, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<{ SignBatches: typeof SignBatches }>(SIGNER, find, replace);
    await assertCaught(signBatches(broken.SignBatches, { rounds: [['a', 'b'], ['c']], mayFail: true }), {}, caught);
  });
}
