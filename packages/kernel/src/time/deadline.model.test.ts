import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { race, type DeadlineClass, type RaceInit } from './deadline.model.ts';
import { Deadline } from './deadline.ts';

const MEDDLERS: RaceInit['meddler'][] = ['none', 'cancel parent', 'cancel child', 'abort outer', 'look'];
const SIZES: RaceInit[] = MEDDLERS.flatMap((meddler) => [
  { parent_ms: 100, child_ms: 50, meddler },
  { parent_ms: 50, child_ms: 100, meddler },
]);

for (const init of SIZES) {
  const { parent_ms, child_ms, meddler } = init;
  const name = `child ${child_ms} ms of ${parent_ms} ms, ${meddler}`;
  test(`run settles once and on time, and counts expiries: ${name}`, async (t) => {
    const { schedules } = await assertHolds(race(Deadline, init), { name });
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS: Record<string, { find: string; replace: string; size: RaceInit; caught: RegExp }> = {
  'work that ignores its signal holds the caller': {
    find: '(_state, reason) => parked.fail(reason)',
    replace: '() => {}',
    size: { parent_ms: 100, child_ms: 50, meddler: 'none' },
    caught: /deadlock/,
  },
  'ended work still follows the deadline': {
    find: '(value) => {\n        this.#drop(follower);',
    replace: '(value) => {',
    size: { parent_ms: 100, child_ms: 50, meddler: 'none' },
    caught: /final/,
  },
  'a child does not follow its parent': {
    find: 'if (this.#parent !== undefined && this.#link !== undefined) this.#parent.#adopt(this.#link);',
    replace: '',
    size: { parent_ms: 100, child_ms: 50, meddler: 'cancel parent' },
    caught: /final/,
  },
  'a child without time of its own is counted beside its parent': {
    find: 'return this.#follow(parent.#state, parent.#why());\n    }',
    replace: '}',
    size: { parent_ms: 50, child_ms: 100, meddler: 'none' },
    caught: /final/,
  },
  'an expiry is not counted': {
    find: '    this.#onExpire?.(this.op);\n',
    replace: '',
    size: { parent_ms: 100, child_ms: 50, meddler: 'look' },
    caught: /final: a timeout is counted/,
  },
};

for (const [name, { find, replace, size, caught }] of Object.entries(MUTANTS)) {
  test(`the model catches: ${name}`, async () => {
    const url = new URL('./deadline.ts', import.meta.url).href;
    const broken = await mutant<{ Deadline: DeadlineClass }>(url, find, replace);
    await assertCaught(race(broken.Deadline, size), { name }, caught);
  });
}
