import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VirtualSched } from '../virtual-sched.ts';
import { LATE, withTimeout } from './with-timeout.ts';

test('work that ends in time gives its outcome and cancels the timer', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    assert.equal(await withTimeout(Promise.resolve(7), 10), 7);
    await assert.rejects(withTimeout(Promise.reject(new Error('no')), 10), /^Error: no$/);
    assert.deepEqual(clock.timers, []);
  });
});

test('work that does not end in time is late, and its later failure is dropped', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    for (const end of ['resolve', 'reject'] as const) {
      const work = Promise.withResolvers<number>();
      const waiting = withTimeout(work.promise, 10);
      await clock.advance(10);
      assert.equal(await waiting, LATE);
      if (end === 'resolve') work.resolve(1);
      else work.reject(new Error('too late'));
    }
  });
});
