import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { keyedMutexModel, type KeyedMutexModelInit } from './keyed-mutex.model.ts';
import { KeyedMutex } from './keyed-mutex.ts';

const PLAIN: KeyedMutexModelInit = { callers: 3, preempt: false };
const PREEMPT: KeyedMutexModelInit = { callers: 3, preempt: true };
const LEAVES: KeyedMutexModelInit = { callers: 2, preempt: true, leaves: true };
const CLOSES: KeyedMutexModelInit = { callers: 2, preempt: true, closes: true };

for (const model of [PLAIN, PREEMPT, LEAVES, CLOSES]) {
  test(`sections of one key run alone and in order: ${JSON.stringify(model)}`, async () => {
    await assertHolds(keyedMutexModel(KeyedMutex, model));
  });
}

const MUTANTS = [
  {
    bug: 'a lock is dropped while a caller waits for it',
    find: 'if (lock.sections.size === 0) this.#drop(key, lock);',
    replace: 'this.#locks.delete(key);',
    model: PLAIN,
    caught: /two sections overlap/,
  },
  {
    bug: 'a lock is never dropped',
    find: 'this.#locks.delete(key);',
    replace: '',
    model: PLAIN,
    caught: /mutex is closed/,
  },
  {
    bug: 'only the running section is preempted',
    find: 'for (const { running } of sections) running.abort(reason);',
    replace: '[...sections][0]?.running.abort(reason);',
    model: PREEMPT,
    caught: /was not preempted/,
  },
  {
    bug: 'close does not wait',
    find: 'await Promise.all([...this.#locks.values()].map(({ mutex }) => mutex.close(signal)));',
    replace: '',
    model: CLOSES,
    caught: /close resolved while a section runs/,
  },
  {
    bug: 'close does not abort the waiters',
    find: 'for (const section of sections) section.end(reason);',
    replace: '{}',
    model: CLOSES,
    caught: /began after close/,
  },
];

for (const { bug, find, replace, model, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const url = import.meta.resolve('./keyed-mutex.ts');
    const broken = await mutant<{ KeyedMutex: typeof KeyedMutex }>(url, find, replace);
    await assertCaught(keyedMutexModel(broken.KeyedMutex, model), {}, caught);
  });
}
