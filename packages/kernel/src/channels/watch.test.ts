import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { setImmediate as settle } from 'node:timers/promises';
import fc from 'fast-check';
import { isRonError } from '../errors.ts';
import { Watch } from './watch.ts';

const forever = new AbortController().signal;

test('changed waits for the first change after the subscription', async () => {
  const watch = new Watch('config', 'a');
  watch.set('b');
  const receiver = watch.subscribe();
  assert.equal(receiver.value, 'b');
  let got: string | undefined;
  const waiting = receiver.changed(forever).then((value) => (got = value));
  await settle();
  assert.equal(got, undefined);
  watch.set('c');
  await waiting;
  assert.equal(got, 'c');
  assert.equal(watch.value, 'c');
});

test('changes between two calls are never missed, and seen as one', async () => {
  const watch = new Watch('config', 0);
  const receiver = watch.subscribe();
  watch.set(1);
  watch.set(2);
  assert.equal(receiver.value, 2, 'looking does not mark it as seen');
  assert.equal(await receiver.changed(forever), 2);
  const next = receiver.changed(forever);
  watch.set(2);
  assert.equal(await next, 2, 'the same value set again is a change');
});

test('a waiter gets the latest value, not the one that woke it, and then waits for the next', async () => {
  const watch = new Watch('config', 0);
  const receiver = watch.subscribe();
  const waiting = receiver.changed(forever);
  watch.set(1);
  watch.set(2);
  assert.equal(await waiting, 2);
  let again = false;
  const next = receiver.changed(forever).then(() => (again = true));
  await settle();
  assert.equal(again, false);
  watch.set(3);
  await next;
});

test('every receiver sees the change for itself', async () => {
  const watch = new Watch('shutdown', false);
  const receivers = [watch.subscribe(), watch.subscribe(), watch.subscribe()];
  const waiting = receivers.slice(0, 2).map((receiver) => receiver.changed(forever));
  watch.set(true);
  assert.deepEqual(await Promise.all(waiting), [true, true]);
  assert.equal(await receivers[2]?.changed(forever), true);
});

test('an aborted wait rejects with the reason and marks nothing as seen', async () => {
  const watch = new Watch('config', 0);
  const receiver = watch.subscribe();
  const controller = new AbortController();
  const waiting = receiver.changed(controller.signal);
  controller.abort(new Error('gone'));
  watch.set(1);
  await assert.rejects(waiting, /gone/);
  await assert.rejects(receiver.changed(controller.signal), /gone/);
  assert.equal(await receiver.changed(forever), 1);
});

test('a waiter that was woken gets the change even if its signal aborts before it runs', async () => {
  const watch = new Watch('config', 0);
  const receiver = watch.subscribe();
  const controller = new AbortController();
  const waiting = receiver.changed(controller.signal);
  watch.set(1);
  controller.abort();
  assert.equal(await waiting, 1);
});

test('close delivers the last change to receivers that have not seen it, then rejects with closed', async () => {
  const watch = new Watch('config', 0);
  const behind = watch.subscribe();
  watch.set(1);
  const { signal } = new AbortController();
  const waiting = watch.subscribe().changed(signal);
  await watch[Symbol.asyncDispose]();
  watch.close();
  const isClosed = (error: unknown): boolean => isRonError(error, 'closed');
  await assert.rejects(waiting, isClosed);
  assert.equal(await behind.changed(forever), 1);
  await assert.rejects(behind.changed(forever), isClosed);
  assert.throws(() => watch.set(2), isClosed);
  assert.equal(watch.value, 1);
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('a receiver that is closed waits no longer, and the others go on', async () => {
  const watch = new Watch('config', 0);
  const [gone, stays] = [watch.subscribe(), watch.subscribe()];
  const first = stays.changed(forever);
  const ends = [gone.changed(forever), gone.changed(forever)];
  const last = stays.changed(forever);
  await gone[Symbol.asyncDispose]();
  gone.close();
  for (const end of ends) await assert.rejects(end, (error) => isRonError(error, 'closed'));
  watch.set(1);
  assert.deepEqual(await Promise.all([first, last]), [1, 1]);
  await assert.rejects(gone.changed(forever), (error) => isRonError(error, 'closed'));
});

test('a signal keeps one listener for all the waits of a receiver', async () => {
  const watch = new Watch('config', 0);
  const receiver = watch.subscribe();
  const { signal } = new AbortController();
  for (let value = 1; value < 50; value += 1) {
    const waiting = receiver.changed(signal);
    watch.set(value);
    assert.equal(await waiting, value);
    assert.equal(getEventListeners(signal, 'abort').length, 1);
  }
  watch.close();
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('any sequence of changes and waits: each answer is newer than the last one, and the newest is always seen', async () => {
  const step = fc.constantFrom('set', 'wait', 'abort', 'settle');
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (sequence) => {
      const watch = new Watch('config', 0);
      const receiver = watch.subscribe();
      let controller = new AbortController();
      let waiting = false;
      let seen = 0;
      const wait = async (): Promise<void> => {
        waiting = true;
        try {
          const value = await receiver.changed(controller.signal);
          assert.ok(value > seen, `${value} after ${seen}`);
          seen = value;
        } catch (error) {
          if (error !== 'gone') throw error;
        }
        waiting = false;
      };
      const waits: Promise<void>[] = [];
      for (const doing of sequence) {
        if (doing === 'set') watch.set(watch.value + 1);
        else if (doing === 'wait' && !waiting) waits.push(wait());
        else if (doing === 'settle') await settle();
        else if (doing === 'abort') {
          controller.abort('gone');
          controller = new AbortController();
        }
      }
      await settle();
      if (seen < watch.value && !waiting) waits.push(wait());
      await settle();
      assert.equal(seen, watch.value);
      controller.abort('gone');
      await Promise.all(waits);
    }),
    { numRuns: 300 },
  );
});

test('a value that is set between an answer and the continuation of its caller is given by the next call', async () => {
  const answers = new Set<number>();
  for (let microtasks = 0; microtasks < 8; microtasks += 1) {
    const watch = new Watch('config', 0);
    const receiver = watch.subscribe();
    const answer = receiver.changed(forever);
    watch.set(1);
    const setLater = async (): Promise<void> => {
      for (let passed = 0; passed < microtasks; passed += 1) await Promise.resolve();
      watch.set(2);
    };
    const later = setLater();
    const value = await answer;
    const current = watch.value;
    if (value < current) answers.add(value);
    await later;
    if (value === 1) assert.equal(await receiver.changed(forever), 2);
  }
  assert.deepEqual([...answers], [1], 'no answer was overtaken: the test shows nothing');
});
