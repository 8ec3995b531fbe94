import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { setImmediate as settle } from 'node:timers/promises';
import { Mpsc } from './mpsc.ts';

const forever = new AbortController().signal;

/** Whether a promise has settled by now; without waiting for it. */
async function isPending(promise: unknown): Promise<boolean> {
  const pending = Symbol('pending');
  await settle();
  return (await Promise.race([promise, Promise.resolve(pending)]).catch(() => undefined)) === pending;
}

/** The timers of a channel do not keep the process alive; a test that waits for one has to. */
function keepAlive(t: TestContext): void {
  const timer = setInterval(() => {}, 1_000);
  t.after(() => clearInterval(timer));
}

test('items come out in the order they went in, also around the end of a growing ring', () => {
  const channel = new Mpsc<number>('jobs', 40);
  const received: unknown[] = [];
  let next = 0;
  for (const [sends, receives] of [
    [10, 7],
    [35, 30],
    [32, 40],
  ] as const) {
    for (let n = 0; n < sends; n += 1) assert.equal(channel.trySend(next++), 'ok');
    for (let n = 0; n < receives; n += 1) received.push(channel.recv(forever));
  }
  assert.deepEqual(
    received,
    Array.from({ length: next }, (_, n) => n),
  );
  assert.equal(channel.depth, 0);
});

test('capacity must be a whole number of at least 1', () => {
  for (const capacity of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(() => new Mpsc('jobs', capacity), /capacity/);
  }
});

test('undefined cannot be sent: it would look like the end', () => {
  const channel = new Mpsc<undefined>('jobs', 1);
  assert.throws(() => channel.trySend(undefined), /undefined/);
  assert.equal(channel.depth, 0);
});

test('trySend refuses at capacity and counts it', () => {
  const channel = new Mpsc<number>('jobs', 2);
  assert.equal(channel.trySend(1), 'ok');
  assert.equal(channel.trySend(2), 'ok');
  // [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3]
  assert.equal(channel.trySend(3), 'full');
  assert.equal(channel.depth, 2);
  assert.equal(channel.rejected_total, 1);
  assert.deepEqual(channel.recvMany(9, forever), [1, 2]);
});

test('recv answers without a promise when an item is there', () => {
  const channel = new Mpsc<number>('jobs', 2);
  channel.trySend(1);
  assert.equal(channel.recv(forever), 1);
  assert.ok(channel.recv(forever) instanceof Promise);
});

test('close lets receivers drain and then gives undefined, and refuses every kind of send', async () => {
  const channel = new Mpsc<number>('jobs', 4);
  for (const item of [1, 2, 3]) channel.trySend(item);
  channel.close();
  channel.close();
  assert.equal(channel.isClosed, true);
  assert.equal(channel.trySend(4), 'closed');
  assert.deepEqual(channel.pushDropOldest(4), { result: 'closed', dropped: undefined });
  assert.equal(await channel.sendWithin(4, 1, forever), 'closed');
  assert.equal(channel.rejected_total, 0);
  assert.equal(channel.recv(forever), 1);
  assert.deepEqual(channel.recvMany(5, forever), [2, 3]);
  assert.equal(channel.recv(forever), undefined);
  assert.deepEqual(channel.recvMany(5, forever), []);
});

test('close sends waiting receivers and senders away', async () => {
  const empty = new Mpsc<number>('jobs', 1);
  const [one, many] = [empty.recv(forever), empty.recvMany(3, forever)];
  empty.close();
  assert.deepEqual([await one, await many], [undefined, []]);

  const full = new Mpsc<number>('jobs', 1);
  full.trySend(1);
  const sending = full.sendWithin(2, 60_000, forever);
  full.close();
  assert.equal(await sending, 'closed');
  assert.equal(full.recv(forever), 1);
  assert.equal(full.recv(forever), undefined, 'an item that was refused is not in the queue');
});

test('`await using` closes it', async () => {
  let waiting: unknown;
  {
    await using channel = new Mpsc<number>('jobs', 1);
    waiting = channel.recv(forever);
  }
  assert.equal(await waiting, undefined);
});

test('waiting receivers are served in the order they came, each with its own item', async () => {
  const channel = new Mpsc<number>('jobs', 4);
  const [first, second, many] = [channel.recv(forever), channel.recv(forever), channel.recvMany(2, forever)];
  for (const item of [1, 2, 3, 4]) channel.trySend(item);
  assert.equal(channel.depth, 1);
  assert.deepEqual([await many, await second, await first], [[3], 2, 1]);
  assert.equal(channel.recv(forever), 4);
});

test('an item that was handed over is delivered even if the signal aborts before the receiver runs', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  const controller = new AbortController();
  const one = channel.recv(controller.signal);
  const many = channel.recvMany(2, controller.signal);
  const late = channel.recv(controller.signal);
  channel.trySend(1);
  channel.trySend(2);
  controller.abort(new Error('gone'));
  assert.equal(await one, 1);
  assert.deepEqual(await many, [2]);
  await assert.rejects(Promise.resolve(late), /gone/);
});

test('a cancelled recv takes nothing; the next one gets the item', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  const controller = new AbortController();
  const cancelled = channel.recv(controller.signal);
  const patient = channel.recv(forever);
  controller.abort(new Error('gone'));
  channel.trySend(1);
  await assert.rejects(Promise.resolve(cancelled), /gone/);
  assert.equal(await patient, 1);
});

test('an aborted signal takes nothing, waits for nothing and sends nothing', async () => {
  const channel = new Mpsc<number>('jobs', 2);
  channel.trySend(1);
  const aborted = AbortSignal.abort(new Error('gone'));
  await assert.rejects(Promise.resolve(channel.recv(aborted)), /gone/);
  await assert.rejects(Promise.resolve(channel.recvMany(2, aborted)), /gone/);
  await assert.rejects(channel.sendWithin(2, 1, aborted), /gone/);
  assert.deepEqual(channel.recvMany(9, forever), [1]);
});

test('recvMany fills the given array, leaves nothing of the last batch in it, and takes the items of waiting senders', async () => {
  const channel = new Mpsc<number>('jobs', 2);
  const into = [9, 9, 9, 9, 9];
  channel.trySend(1);
  channel.trySend(2);
  const sending = channel.sendWithin(3, 60_000, forever);
  assert.equal(channel.recvMany(2, forever, into), into);
  assert.deepEqual(into, [1, 2]);
  assert.equal(await sending, 'ok');
  assert.equal(channel.recvMany(2, forever, into), into);
  assert.deepEqual(into, [3]);
  const waiting = channel.recvMany(2, forever, into);
  assert.deepEqual(into, []);
  channel.trySend(4);
  assert.equal(await waiting, into);
  assert.deepEqual(into, [4]);
  assert.throws(() => channel.recvMany(0, forever), /at least one/);
});

test('waiting senders are served in the order they came, and no sender overtakes them', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  channel.trySend(1);
  const second = channel.sendWithin(2, 60_000, forever);
  const third = channel.sendWithin(3, 60_000, forever);
  assert.equal(channel.recv(forever), 1);
  assert.equal(channel.trySend(9), 'full', 'the room went to the sender that waited');
  assert.equal(await second, 'ok');
  assert.equal(await isPending(third), true);
  assert.equal(channel.recv(forever), 2);
  assert.equal(await third, 'ok');
  assert.equal(channel.recv(forever), 3);
});

test('sendWithin gives up with full after its time and then the item is not queued', async (t) => {
  keepAlive(t);
  const channel = new Mpsc<number>('jobs', 1);
  channel.trySend(1);
  const atOnce = channel.sendWithin(2, 0, forever);
  assert.equal(channel.rejected_total, 1, 'no time, no wait');
  assert.equal(await atOnce, 'full');
  assert.equal(await channel.sendWithin(3, 2, forever), 'full');
  assert.equal(channel.rejected_total, 2);
  assert.equal(channel.recv(forever), 1);
  assert.equal(channel.depth, 0);
});

test('an aborted sendWithin rejects with the reason and its item is not queued', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  channel.trySend(1);
  const controller = new AbortController();
  const sending = channel.sendWithin(2, 60_000, controller.signal);
  const patient = channel.sendWithin(3, 60_000, forever);
  controller.abort(new Error('gone'));
  await assert.rejects(sending, /gone/);
  assert.equal(channel.recv(forever), 1);
  assert.equal(await patient, 'ok');
  assert.equal(channel.recv(forever), 3);
  assert.equal(channel.rejected_total, 0);
});

test('a sender that was let in stays in, even if its signal aborts before it runs', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  channel.trySend(1);
  const controller = new AbortController();
  const sending = channel.sendWithin(2, 60_000, controller.signal);
  assert.equal(channel.recv(forever), 1);
  controller.abort();
  assert.equal(await sending, 'ok');
  assert.equal(channel.recv(forever), 2);
});

test('pushDropOldest drops the oldest that is not protected, keeps the order, and refuses when all are protected', () => {
  const channel = new Mpsc<string>('audit', 3);
  const keep = (item: string): boolean => item.startsWith('!');
  channel.trySend('moves the head');
  assert.equal(channel.recv(forever), 'moves the head');
  for (const item of ['!a', 'b', 'c']) assert.deepEqual(channel.pushDropOldest(item, keep).result, 'ok');
  assert.deepEqual(channel.pushDropOldest('!d', keep), { result: 'ok', dropped: 'b' });
  assert.deepEqual(channel.pushDropOldest('!e', keep), { result: 'ok', dropped: 'c' });
  assert.deepEqual(channel.pushDropOldest('f', keep), { result: 'full', dropped: undefined });
  assert.equal(channel.dropped_total, 2);
  assert.equal(channel.rejected_total, 1);
  assert.deepEqual(channel.pushDropOldest('g'), { result: 'ok', dropped: '!a' });
  assert.deepEqual(channel.recvMany(9, forever), ['!d', '!e', 'g']);
});

test('pushDropOldest hands over to a waiting receiver', async () => {
  const channel = new Mpsc<number>('audit', 1);
  const waiting = channel.recv(forever);
  assert.deepEqual(channel.pushDropOldest(1), { result: 'ok', dropped: undefined });
  assert.equal(await waiting, 1);
  assert.equal(channel.depth, 0);
});

test('`keep` that uses the channel is caught before anything is dropped', () => {
  const channel = new Mpsc<number>('audit', 2);
  channel.trySend(1);
  channel.trySend(2);
  assert.throws(() => channel.pushDropOldest(3, () => channel.recv(forever) === undefined), /must not use the channel/);
  assert.equal(channel.recv(forever), 2);
});

test('a signal that outlives the channel keeps one listener for all its waits, and none after close', async () => {
  const { signal } = new AbortController();
  const channel = new Mpsc<number>('jobs', 1);
  const listeners = (): number => getEventListeners(signal, 'abort').length;
  for (let item = 0; item < 100; item += 1) {
    const waiting = channel.recv(signal);
    channel.trySend(item);
    assert.equal(await waiting, item);
    assert.equal(listeners(), 1);
  }
  channel.trySend(1);
  const sending = channel.sendWithin(2, 60_000, signal);
  assert.equal(listeners(), 2);
  assert.equal(channel.recv(signal), 1);
  await sending;
  channel.close();
  assert.equal(listeners(), 0);
});

test('an item that was taken is not kept alive by the ring', async () => {
  const channel = new Mpsc<object>('jobs', 4);
  const refs: WeakRef<object>[] = [];
  const send = (count: number): void => {
    for (let n = 0; n < count; n += 1) {
      const item = { n };
      refs.push(new WeakRef(item));
      channel.pushDropOldest(item, (queued) => (queued as { n: number }).n === 0);
    }
  };
  const receive = async (): Promise<void> => void (await channel.recv(forever));
  const receiveTwo = async (): Promise<void> => void (await channel.recvMany(2, forever));
  send(6);
  await receive();
  await receiveTwo();
  await receive();
  const waiting = receive();
  send(1);
  await waiting;
  await collect(() => refs.every((ref) => ref.deref() === undefined));
  assert.equal(channel.depth, 0);
});

/** Collects garbage until the condition holds; the test runner's time limit ends a wait that never does. */
async function collect(done: () => boolean): Promise<void> {
  const { setFlagsFromString } = await import('node:v8');
  const { runInNewContext } = await import('node:vm');
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  for (let round = 0; round < 50; round += 1) {
    await settle(); // a dereferenced WeakRef keeps its target until the end of its task
    gc();
    if (done()) return;
  }
  assert.fail('still reachable after 50 collections');
}
