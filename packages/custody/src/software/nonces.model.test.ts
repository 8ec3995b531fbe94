import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { nonces, type NoncesModelInit, type TrackerClass } from './nonces.model.ts';
import { NonceTracker } from './nonces.ts';

const NONCES = import.meta.resolve('./nonces.ts');

const CALM: NoncesModelInit = { takers: 3, takersAfterCrash: 0, mayFail: false, block: 2, uses_max: 8 };
const CRASH: NoncesModelInit = { takers: 2, takersAfterCrash: 1, mayFail: false, block: 2, uses_max: 8 };
const CRASH_EARLY: NoncesModelInit = { takers: 1, takersAfterCrash: 2, mayFail: false, block: 2, uses_max: 8 };
const FAILING: NoncesModelInit = { takers: 2, takersAfterCrash: 0, mayFail: true, block: 1, uses_max: 8 };
const FAILING_AND_CRASH: NoncesModelInit = { takers: 1, takersAfterCrash: 1, mayFail: true, block: 1, uses_max: 8 };
const LIMIT: NoncesModelInit = { takers: 3, takersAfterCrash: 0, mayFail: false, block: 2, uses_max: 1 };

test('no number is used twice or before it is reserved, across crashes and failures; the limit holds', async () => {
  for (const init of [CALM, CRASH, CRASH_EARLY, FAILING, FAILING_AND_CRASH, LIMIT]) {
    await assertHolds(nonces(NonceTracker, init));
  }
});

const MUTANTS = [
  {
    bug: 'numbers are used while their reservation is in progress',
    find: 'await this.#init.reserve(end);',
    replace: 'void this.#init.reserve(end);',
    init: CRASH,
    caught: /used twice|before it was reserved/,
  },
  {
    bug: 'a failed reservation counts as successful',
    find: 'this.#isReserving = false;\n      this.#waiting.failAll(error);',
    replace: 'this.#isReserving = false;\n      this.#end = end;\n      this.#waiting.failAll(error);',
    init: FAILING,
    caught: /before it was reserved/,
  },
  {
    bug: 'a woken caller takes a number without checking that one is left',
    find: 'while (this.#next === this.#end) {',
    replace: 'if (this.#next === this.#end) {',
    init: CALM,
    caught: /before it was reserved/,
  },
  {
    bug: 'the counter passes the limit',
    find: 'Math.min(this.#end + this.#block, this.#uses_max)',
    replace: 'this.#end + this.#block',
    init: LIMIT,
    caught: /limit/,
  },
];

for (const { bug, find, replace, init, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const { NonceTracker: Mutant } = await mutant<{ NonceTracker: TrackerClass }>(NONCES, find, replace);
    await assertCaught(nonces(Mutant, init), {}, caught);
  });
}
