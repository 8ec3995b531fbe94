import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VirtualSched } from '../virtual-sched.ts';
import { CoalescedCall } from './coalesced-call.ts';
import { LATE } from './with-timeout.ts';

test('callers share the call under way, and the next caller starts another', async () => {
  const calls: PromiseWithResolvers<number>[] = [];
  const probe = new CoalescedCall(() => {
    const call = Promise.withResolvers<number>();
    calls.push(call);
    return call.promise;
  });
  const clock = new VirtualSched();
  await clock.during(async () => {
    const first = probe.run(10);
    const second = probe.run(20);
    await clock.advance(10);
    assert.equal(await first, LATE);
    assert.equal(calls.length, 1, 'a call that hangs is not repeated');
    calls[0]!.resolve(1);
    assert.equal(await second, 1);
    const third = probe.run(10);
    assert.equal(calls.length, 2);
    calls[1]!.reject(new Error('gone'));
    await assert.rejects(third, /^Error: gone$/);
    assert.deepEqual(clock.timers, []);
  });
});
