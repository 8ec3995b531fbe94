import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { WaitList } from './wait-list.ts';

const FREE_MAX = 16;
const forever = new AbortController().signal;
const listeners = (signal: AbortSignal): number => getEventListeners(signal, 'abort').length;
const newList = (): WaitList<string, number> => new WaitList({ owner: {}, label: 'test', expired: (n) => `late ${n}` });

test('waiters leave in the order they came, from both ends and the middle', async () => {
  const list = newList();
  const controller = new AbortController();
  const waits = [
    list.park(forever, 0),
    list.park(controller.signal, 1),
    list.park(forever, 2),
    list.park(controller.signal, 3),
  ];
  controller.abort('gone');
  assert.equal(list.size, 2);
  assert.equal(list.peek(), 0);
  list.wakeFirst('a');
  assert.equal(list.peek(), 2);
  waits.push(list.park(forever, 4));
  list.wakeFirst('b');
  list.wakeFirst('c');
  assert.equal(list.size, 0);
  const results = await Promise.allSettled(waits);
  assert.deepEqual(
    results.map((result) => (result.status === 'fulfilled' ? result.value : result.reason)),
    ['a', 'gone', 'b', 'gone', 'c'],
  );
});

test('without a waiter none can be woken', () => {
  const list = newList();
  assert.throws(() => list.wakeFirst('a'), /a caller waits/);
  assert.throws(() => list.peek(), /a caller waits/);
});

test('a wait with a time ends with what `expired` gives, and its timer goes when it ends otherwise', async (t) => {
  const list = newList();
  const kept = setInterval(() => {}, 1_000); // the list's own timers do not keep the process alive
  t.after(() => clearInterval(kept));
  const late = list.park(forever, 1, 2);
  const woken = list.park(forever, 2, 1);
  const controller = new AbortController();
  const aborted = list.park(controller.signal, 3, 1);
  controller.abort('gone');
  list.failAll('failed', (n) => n === 2);
  await assert.rejects(aborted, (reason) => reason === 'gone');
  await assert.rejects(woken, (reason) => reason === 'failed');
  assert.equal(await late, 'late 1');
  assert.equal(list.size, 0);
});

test('a waiter that leaves by abort frees no second one', async () => {
  const list = newList();
  const controller = new AbortController();
  const first = list.park(controller.signal, 1);
  list.wakeFirst('mine');
  const second = list.park(forever, 2);
  controller.abort();
  // [storage I-5] [kms I-5] [index I-5] [edge I-5] [interop I-5]
  assert.equal(await first, 'mine');
  assert.equal(list.size, 1);
  list.wakeFirst('yours');
  assert.equal(await second, 'yours');
});

test('a signal keeps one listener however often it is waited under', async () => {
  const list = newList();
  const { signal } = new AbortController();
  for (let n = 0; n < 50; n += 1) {
    const wait = list.park(signal, n);
    assert.equal(listeners(signal), 1);
    list.wakeFirst('ok');
    await wait;
  }
});

test('the listener works again after each reuse, and a signal that has aborted is let go', async () => {
  const list = newList();
  for (let n = 0; n < 3 * FREE_MAX; n += 1) {
    const controller = new AbortController();
    const kept = list.park(controller.signal, n);
    list.wakeFirst('ok');
    await kept;
    const wait = list.park(controller.signal, n);
    controller.abort(n);
    await assert.rejects(wait, (reason) => reason === n);
    assert.equal(listeners(controller.signal), 0);
  }
});

test('listeners of idle waiters are bounded: the oldest goes first, and all go on close', async () => {
  const list = newList();
  const signals = Array.from({ length: 3 * FREE_MAX }, () => new AbortController().signal);
  const total = (): number => signals.reduce((sum, signal) => sum + listeners(signal), 0);

  // One after the other.
  for (const signal of signals) {
    const wait = list.park(signal, 0);
    list.wakeFirst('ok');
    await wait;
  }
  assert.equal(total(), FREE_MAX);
  assert.deepEqual(
    signals.map((signal) => listeners(signal)),
    signals.map((_, at) => (at < signals.length - FREE_MAX ? 0 : 1)),
  );

  // All at once: each needs its own while it waits, and no longer.
  const waits = signals.map((signal) => list.park(signal, 0));
  assert.equal(total(), signals.length);
  while (list.size > 0) list.wakeFirst('ok');
  await Promise.all(waits);
  assert.equal(total(), FREE_MAX);

  list.close();
  assert.equal(total(), 0);
  assert.throws(() => list.park(forever, 0), /closed/);
});

test('a list with a waiter cannot be closed', async () => {
  const list = newList();
  const wait = list.park(forever, 0);
  assert.throws(() => list.close(), /closed without waiters/);
  list.wakeFirst('ok');
  await wait;
});
