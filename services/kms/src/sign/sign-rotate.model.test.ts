import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { KeyRegistry } from '../keys/key-registry.ts';
import { KeyOperations } from '../keys/key-operations.ts';
import { signAgainstRotate, type Parts } from './sign-rotate.model.ts';
import { Signer } from './signer.ts';

const REAL: Parts = { KeyRegistry, KeyOperations, Signer };

test('once a rotation was acknowledged, the retired version no longer signs', async () => {
  await assertHolds(signAgainstRotate(REAL, { rotators: 1, signers: ['any version', 'version 1'] }), {
    name: 'sign against rotate',
  });
});

test('concurrent rotations create separate versions', async () => {
  await assertHolds(signAgainstRotate(REAL, { rotators: 2, signers: ['any version'] }), { name: 'two rotations' });
});

const MUTANTS = [
  {
    bug: 'the version is not checked again after signing',
    part: 'Signer',
    module: import.meta.resolve('./signer.ts'),
    find: 'if (this.#current(request.kid).version.version === version.version) return',
    replace: 'return',
    caught: /after the rotation to 2 was acknowledged/,
  },
  {
    bug: 'a version signs before it is on disk',
    part: 'KeyRegistry',
    module: import.meta.resolve('../keys/key-registry.ts'),
    find: 'draft.onCommitted(() => this.#publish(record));',
    replace: 'this.#publish(record);',
    caught: /is not on disk/,
  },
  {
    bug: 'a rotation builds on a record from before it waited',
    part: 'KeyOperations',
    module: import.meta.resolve('../keys/key-operations.ts'),
    find: 'const current = index.current(kid).record;',
    replace: 'const current = record;',
    caught: /its own version/,
  },
];

for (const { bug, part, module, find, replace, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<Parts>(module, find, replace);
    const parts = { ...REAL, [part]: broken[part as keyof Parts] };
    const init = { rotators: part === 'KeyOperations' ? 2 : 1, signers: ['any version'] } as const;
    await assertCaught(signAgainstRotate(parts, init), {}, caught);
  });
}
