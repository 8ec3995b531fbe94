import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { KeyLifecycle } from '../keys/key-lifecycle.ts';
import { KeyRegistry } from '../keys/key-registry.ts';
import { signAgainstDisable, type Parts } from './sign-disable.model.ts';
import { Signer } from './signer.ts';

const REAL: Parts = { KeyRegistry, KeyLifecycle, Signer };

for (const withdrawal of ['disable', 'delete'] as const) {
  test(`once a ${withdrawal} was acknowledged, the key no longer signs`, async () => {
    await assertHolds(signAgainstDisable(REAL, { withdrawal, signers: 2 }), { name: `sign against ${withdrawal}` });
  });
}

const MUTANTS = [
  {
    bug: 'the state is not checked again after signing',
    part: 'Signer',
    module: import.meta.resolve('./signer.ts'),
    find: 'if (this.#current(request.kid).version.version === version.version) return',
    replace: 'return',
    withdrawal: 'disable',
    caught: /signed after the withdrawal was acknowledged/,
  },
  {
    bug: 'a key in its waiting period is not disabled',
    part: 'Signer',
    module: import.meta.resolve('./signer.ts'),
    find: 'requireEnabled(found.record);',
    replace: "if (found.record.disabled === true) throw new RonError('conflict', 'disabled');",
    withdrawal: 'delete',
    caught: /signed after the withdrawal was acknowledged/,
  },
  {
    bug: 'key material is destroyed before the deletion is on disk',
    part: 'KeyLifecycle',
    module: import.meta.resolve('../keys/key-lifecycle.ts'),
    find: 'let record = await this.#registry.change(',
    replace:
      'for (const each of this.#registry.index.record(kid).versions) await this.#backend.destroy(each.handle!, signal);\n' +
      '    let record = await this.#registry.change(',
    withdrawal: 'delete',
    caught: /destroyed before the deletion was on disk/,
  },
] as const;

for (const { bug, part, module, find, replace, withdrawal, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<Parts>(module, find, replace);
    const parts = { ...REAL, [part]: broken[part as keyof Parts] };
    await assertCaught(signAgainstDisable(parts, { withdrawal, signers: 1 }), {}, caught);
  });
}
