import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { LongPoll } from './long-poll.ts';
import { NEVER } from './never.ts';
import { VirtualSched } from '../virtual-sched.ts';
import { Watch } from '../channels/watch.ts';

const newerThan = (known: number) => (value: number) => value > known;

function setUp(capacity = 2) {
  const watch = new Watch('version', 1);
  return { watch, polls: new LongPoll({ capacity, hold_ms: 1000, watch }) };
}

test('a client that does not know the value gets it at once; one that does gets the next that is new', async () => {
  await new VirtualSched().during(async () => {
    const { watch, polls } = setUp();
    assert.equal(await polls.next(newerThan(0), NEVER), 1);
    const held = polls.next(newerThan(1), NEVER);
    assert.equal(polls.depth, 1);
    watch.set(1);
    await Promise.resolve();
    assert.equal(polls.depth, 1, 'a change to a known value does not answer the poll');
    watch.set(2);
    assert.equal(await held, 2);
    assert.equal(polls.depth, 0);
  });
});

test('a client is held for the time and no longer', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const { polls } = setUp();
    let isAnswered = false;
    const held = polls.next(newerThan(1), NEVER).finally(() => (isAnswered = true));
    await time.advance(999);
    assert.equal(isAnswered, false);
    await time.advance(1);
    assert.equal(await held, undefined);
    assert.equal(time.timers.length, 0);
  });
});

test('a client beyond the capacity is answered at once and counted, even if it polls again and again', async () => {
  await new VirtualSched().during(async () => {
    const { watch, polls } = setUp(2);
    const held = [polls.next(newerThan(1), NEVER), polls.next(newerThan(1), NEVER)];
    for (let at = 0; at < 3; at++) assert.equal(await polls.next(newerThan(1), NEVER), undefined);
    assert.equal(await polls.next(newerThan(0), NEVER), 1, 'a new value needs no room');
    assert.equal(polls.rejected_total, 3);
    watch.set(2);
    assert.deepEqual(await Promise.all(held), [2, 2]);
    assert.equal(polls.depth, 0);
  });
});

test('a client that leaves, a watch that is closed and a close end the hold, and leave nothing behind', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    for (const end of ['client leaves', 'watch closes', 'poll closes'] as const) {
      const { watch, polls } = setUp();
      const client = new AbortController();
      const held = polls.next(newerThan(1), client.signal);
      if (end === 'client leaves') client.abort();
      if (end === 'watch closes') watch.close();
      if (end === 'poll closes') polls.close();
      assert.equal(await held, undefined, end);
      assert.deepEqual([polls.depth, time.timers.length], [0, 0], end);
      assert.equal(getEventListeners(client.signal, 'abort').length, 0, end);
    }
  });
});

test('a closed poll still gives a value that is new, and holds no client', async () => {
  const { polls } = setUp();
  polls.close();
  polls.close();
  assert.equal(await polls.next(newerThan(0), NEVER), 1);
  assert.equal(await polls.next(newerThan(1), NEVER), undefined);
  assert.equal(polls.rejected_total, 0);
});
