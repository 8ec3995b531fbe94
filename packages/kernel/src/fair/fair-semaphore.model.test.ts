import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { onePermit, type FairSemaphoreModule } from './fair-semaphore.model.ts';
import * as real from './fair-semaphore.ts';

const MODELS = [
  [3, 'none'],
  [2, 'abort'],
  [2, 'close'],
] as const;

for (const [calls, event] of MODELS) {
  const name = `${calls} calls, ${event}`;
  test(`work never overlaps, every call is answered and no permit is lost: ${name}`, async (t) => {
    const { schedules } = await assertHolds(onePermit(real, calls, event), { name, sleepSets: true });
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS = [
  {
    name: 'a call that is aborted after it got its permit begins its work',
    find: 'signal.throwIfAborted();\n      return await work();',
    replace: 'return await work();',
    event: 'abort',
    expected: /work began for an aborted call/,
  },
  {
    name: 'a permit that is given back wakes no waiter',
    find: 'while (this.#hasRoom) {',
    replace: 'while (false) {',
    event: 'none',
    expected: /deadlock|there is room/,
  },
  {
    name: 'a permit is counted when the waiter runs',
    find: 'this.#in_progress += waiter.cost;\n      waiter.parked.wake();',
    replace: 'waiter.parked.wake();\n      return;',
    event: 'none',
    expected: /./,
  },
  {
    name: 'failed work keeps its permit',
    find: '} finally {\n      this.#release(cost);\n    }',
    replace: '} finally {\n    }',
    event: 'none',
    expected: /deadlock/,
  },
  {
    name: 'an aborted call stays in the queue',
    find: 'this.#waiters.remove(waiter);',
    replace: '',
    event: 'abort',
    expected: /./,
  },
  {
    name: 'close forgets the calls that wait',
    find: 'for (const waiter of this.#waiters.entries()) this.#leave(waiter).fail(this.#draining());',
    replace: 'for (const waiter of this.#waiters.entries()) this.#leave(waiter);',
    event: 'close',
    expected: /deadlock/,
  },
] as const;

for (const { name, find, replace, event, expected } of MUTANTS) {
  test(`caught: ${name}`, async () => {
    const module = await mutant<FairSemaphoreModule>(import.meta.resolve('./fair-semaphore.ts'), find, replace);
    await assertCaught(onePermit(module, 2, event), { name, sleepSets: true }, expected);
  });
}
