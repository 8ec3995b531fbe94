import { test } from 'node:test';
import { assertCaught, assertHoldsWithin, mutant } from '@ron/explorer';
import { Checker } from './checker.ts';
import { keysAgainstChecks, revocationsAgainstChecks, type Parts } from './checker.model.ts';
import { DerivedKeySource } from '../keys/derived-keys.ts';
import { Revocations } from '../revocations/revocations.ts';

const REAL: Parts = { Checker, DerivedKeySource, Revocations };

/** All schedules of Node. With delayed wake-ups there are more than 60,000. */
const AS_IN_NODE = { delayed: false };
/** No property of revocations depends on time. */
const TIMELESS = { lags: 0 };

test('a key that is known to be retired is never valid again', async (t) => {
  await assertHoldsWithin(t, keysAgainstChecks(REAL), { name: 'key rotation against check', ...AS_IN_NODE });
});

test('an applied revocation is in force for every later check', async (t) => {
  await assertHoldsWithin(t, revocationsAgainstChecks(REAL), { name: 'revocation against check', ...TIMELESS });
});

const MUTANTS = [
  {
    bug: 'cached tokens are not dropped when keys change',
    part: 'Checker',
    module: import.meta.resolve('./checker.ts'),
    find: 'if (token.length > TOKEN_CHARS_MAX) return TOO_LONG;\n    this.#forgetIfKeysChanged();',
    replace: 'if (token.length > TOKEN_CHARS_MAX) return TOO_LONG;',
    model: keysAgainstChecks,
    caught: /a retired key is valid again/,
  },
  {
    bug: 'a retired key is still accepted',
    part: 'DerivedKeySource',
    module: import.meta.resolve('../keys/derived-keys.ts'),
    find: 'sum += ring?.generation ?? 0;',
    replace: 'sum += ring === undefined ? 0 : 0;',
    model: keysAgainstChecks,
    caught: /a retired key is valid again/,
  },
  {
    bug: 'an older document undoes a revocation',
    part: 'Revocations',
    module: import.meta.resolve('../revocations/revocations.ts'),
    find: 'new Map(hasRoom || !isNewest ? known : [])',
    replace: 'new Map<string, number>()',
    model: revocationsAgainstChecks,
    caught: /a revoked token is accepted/,
  },
  {
    bug: 'the epoch of a cached token is not checked',
    part: 'Checker',
    module: import.meta.resolve('./checker.ts'),
    find: 'if (proven !== undefined) return this.#judge(proven, request);',
    replace: 'if (proven !== undefined) return { ok: true } as never;',
    model: revocationsAgainstChecks,
    caught: /a revoked token is accepted/,
  },
];

for (const { bug, part, module, find, replace, model, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<Parts>(module, find, replace);
    const parts = { ...REAL, [part]: broken[part as keyof Parts] };
    await assertCaught(model(parts), model === keysAgainstChecks ? AS_IN_NODE : TIMELESS, caught);
  });
}
