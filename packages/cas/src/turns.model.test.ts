import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { takingTurns } from './turns.model.ts';
import { Turns } from './turns.ts';

test('works on one key never overlap, and everybody is served or leaves', async () => {
  await assertHolds(takingTurns(Turns, { requests: 3, leaves: false, closes: false }));
  await assertHolds(takingTurns(Turns, { requests: 2, leaves: true, closes: false }));
  await assertHolds(takingTurns(Turns, { requests: 2, leaves: false, closes: true }));
});

const MUTANTS = [
  {
    bug: 'who was woken does not look whether somebody else was faster',
    find: 'taken !== undefined; taken = this.#turns.get(key)) {',
    replace: 'taken !== undefined; taken = undefined) {',
    init: { requests: 3, leaves: false, closes: false },
    caught: /two works/,
  },
  {
    bug: 'a turn that ends wakes nobody',
    find: 'for (const parked of turn.waiting) parked.wake();',
    replace: '',
    init: { requests: 2, leaves: false, closes: false },
    caught: 'deadlock' as const,
  },
  {
    bug: 'closing does not wait',
    find: 'for (const turn of this.#turns.values()) await this.#wait(turn, signal);',
    replace: '',
    init: { requests: 2, leaves: false, closes: true },
    caught: /closed while a work/,
  },
  {
    bug: 'a waiter begins after the end',
    find: 'if (this.#closed) throw',
    replace: 'if (false) throw',
    init: { requests: 2, leaves: false, closes: true },
    caught: /began after the end|closed while/,
  },
];

for (const { bug, find, replace, init, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<{ Turns: typeof Turns }>(import.meta.resolve('./turns.ts'), find, replace);
    await assertCaught(takingTurns(broken.Turns, init), {}, caught);
  });
}
