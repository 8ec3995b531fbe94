import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import fc from 'fast-check';
import { Broadcast } from './broadcast.ts';
import type { Subscription } from './broadcast.ts';
import { isRonError } from '../errors.ts';
import { installSched, realSched } from '../sched.ts';

const forever = new AbortController().signal;

function drain<T>(subscription: Subscription<T>): (T | undefined)[] {
  const events: (T | undefined)[] = [];
  while (subscription.depth > 0) events.push(subscription.recv(forever) as T);
  return events;
}

test('every subscriber gets every event since it came, in order', async () => {
  const bus = new Broadcast<number>('events', 4);
  bus.publish(0);
  const early = bus.subscribe('early');
  const waiting = early.recv(forever);
  bus.publish(1);
  const late = bus.subscribe('late');
  bus.publish(2);
  assert.equal(await waiting, 1);
  assert.deepEqual(drain(early), [2]);
  assert.deepEqual(drain(late), [2]);
  assert.equal(bus.lagged_total, 0);
});

test('a subscriber that is full loses its oldest events, the others nothing, and each loss is counted', () => {
  const bus = new Broadcast<number>('events', 2);
  const slow = bus.subscribe('slow');
  const quick = bus.subscribe('quick');
  const seen: (number | undefined)[] = [];
  for (let event = 0; event < 5; event += 1) {
    bus.publish(event);
    seen.push(...drain(quick));
  }
  assert.deepEqual(seen, [0, 1, 2, 3, 4]);
  // [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3]
  assert.deepEqual(drain(slow), [3, 4]);
  assert.equal(slow.lagged_total, 3);
  assert.equal(quick.lagged_total, 0);
  assert.equal(bus.lagged_total, 3);
  slow.close();
  assert.equal(bus.lagged_total, 3, 'events that a subscriber lost stay counted after it has left');
});

test('onLag is called at most once in 5 s for a subscriber, with all events lost since', () => {
  let now_ms = 1_000;
  const previous = installSched({ ...realSched, now_ms: () => now_ms });
  try {
    const reports: [number, string][] = [];
    const bus = new Broadcast<number>('events', 1, { onLag: (lagged, name) => reports.push([lagged, name]) });
    const slow = bus.subscribe('slow');
    bus.publish(0);
    assert.deepEqual(reports, []);
    bus.publish(1);
    assert.deepEqual(reports, [[1, 'slow']]);
    now_ms += 4_999;
    bus.publish(2);
    bus.publish(3);
    assert.equal(reports.length, 1);
    bus.subscribe('other');
    bus.publish(4);
    bus.publish(5);
    assert.deepEqual(reports.slice(1), [[1, 'other']], 'one subscriber does not silence another');
    now_ms += 1;
    bus.publish(6);
    assert.deepEqual(reports.slice(2), [[5, 'slow']]);
    now_ms += 5_000;
    bus.publish(7);
    assert.deepEqual(reports.slice(3), [
      [1, 'slow'],
      [2, 'other'],
    ]);
    assert.equal(slow.lagged_total, 7);
  } finally {
    installSched(previous);
  }
});

test('an onLag that throws does not keep the event from a subscriber', () => {
  const bus = new Broadcast<number>('events', 1, {
    onLag: () => {
      throw new Error('log is broken');
    },
  });
  const slow = bus.subscribe('slow');
  bus.publish(0);
  const late = bus.subscribe('late');
  assert.throws(() => bus.publish(1), /log is broken/);
  assert.deepEqual([drain(slow), drain(late)], [[1], [1]]);
});

test('subscribers are bounded, and one that leaves makes room', () => {
  const bus = new Broadcast<number>('events', 1, { subscribers_max: 2 });
  const first = bus.subscribe('a');
  bus.subscribe('b');
  assert.throws(
    () => bus.subscribe('c'),
    (error) => isRonError(error, 'busy'),
  );
  first.close();
  first.close();
  assert.equal(bus.subscribers, 1);
  bus.subscribe('c');

  const usual = new Broadcast<number>('events', 1);
  for (let n = 0; n < 64; n += 1) usual.subscribe(`s${n}`);
  assert.throws(() => usual.subscribe('one too many'), /64 subscribers/);
});

test('a closed subscription drains, then ends, and gets nothing more', async () => {
  const bus = new Broadcast<number>('events', 4);
  const subscription = bus.subscribe('a');
  bus.publish(1);
  subscription.close();
  bus.publish(2);
  assert.equal(subscription.recv(forever), 1);
  assert.equal(subscription.recv(forever), undefined);
});

test('closing the broadcast ends every subscription and refuses new ones; publishing does nothing', async () => {
  const bus = new Broadcast<number>('events', 4);
  const { signal } = new AbortController();
  const behind = bus.subscribe('behind');
  bus.publish(1);
  const ahead = bus.subscribe('ahead');
  const waiting = ahead.recv(signal);
  await bus[Symbol.asyncDispose]();
  bus.close();
  bus.publish(2);
  assert.equal(await waiting, undefined);
  assert.deepEqual(drain(behind), [1]);
  assert.equal(behind.recv(forever), undefined);
  assert.equal(bus.subscribers, 0);
  assert.equal(getEventListeners(signal, 'abort').length, 0);
  assert.throws(
    () => bus.subscribe('late'),
    (error) => isRonError(error, 'closed'),
  );
});

test('a cancelled recv loses no event', async () => {
  const bus = new Broadcast<number>('events', 1);
  const subscription = bus.subscribe('a');
  const controller = new AbortController();
  const handed = subscription.recv(controller.signal);
  bus.publish(1);
  controller.abort();
  assert.equal(await handed, 1);
  await assert.rejects(Promise.resolve(subscription.recv(controller.signal)), { name: 'AbortError' });
  bus.publish(2);
  assert.equal(subscription.recv(forever), 2);
});

test('for every subscriber, received and lost events add up to the published ones', () => {
  const steps = fc.array(
    fc.oneof(fc.constant({ do: 'publish' as const }), fc.record({ do: fc.constant('recv' as const), who: fc.nat(2) })),
    { maxLength: 100 },
  );
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 4 }), steps, (capacity, sequence) => {
      const bus = new Broadcast<number>('events', capacity);
      const all = ['a', 'b', 'c'].map((name) => ({
        subscription: bus.subscribe(name),
        queue: [] as number[],
        lost: 0,
      }));
      let published = 0;
      for (const step of sequence) {
        if (step.do === 'publish') {
          bus.publish(published);
          for (const one of all) {
            one.queue.push(published);
            if (one.queue.length > capacity) one.lost += Number(one.queue.shift() !== undefined);
          }
          published += 1;
        } else {
          const one = all[step.who];
          if (one !== undefined && one.queue.length > 0)
            assert.equal(one.subscription.recv(forever), one.queue.shift());
        }
      }
      for (const { subscription, queue, lost } of all) {
        assert.equal(subscription.lagged_total, lost);
        assert.deepEqual(drain(subscription), queue);
      }
      assert.equal(
        bus.lagged_total,
        all.reduce((sum, one) => sum + one.lost, 0),
      );
    }),
  );
});
