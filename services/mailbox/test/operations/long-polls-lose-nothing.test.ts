import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { texts, TOPIC, withMailbox } from './support.ts';

const WAIT = { max: 10, wait_ms: 20_000 };

test('waiting receivers get messages in the order of their calls, a batch as one delivery', async () => {
  await withMailbox(async ({ box }) => {
    const first = box.awaitMessage(TOPIC, WAIT, NEVER, NEVER);
    const second = box.awaitMessage(TOPIC, WAIT, NEVER, NEVER);
    const batch = ['a', 'b', 'c'].map((text) => ({ topic: TOPIC, payload: Buffer.from(text) }));
    await box.send(batch, NEVER);
    assert.deepEqual(texts((await first).messages), ['a', 'b', 'c']);
    await box.send([{ topic: TOPIC, payload: Buffer.from('d') }], NEVER);
    assert.deepEqual(texts((await second).messages), ['d']);
    assert.equal(box.parts.receivers.depth, 0);
  });
});

test('a wait ends empty when its time is over', async () => {
  await withMailbox(async ({ box, clock }) => {
    const waiting = box.awaitMessage(TOPIC, WAIT, NEVER, NEVER);
    await clock.advance(19_999);
    assert.equal(box.parts.receivers.depth, 1);
    await clock.advance(1);
    assert.deepEqual((await waiting).messages, []);
  });
});

test('[mailbox I-12] a drain ends waits at once', async () => {
  await withMailbox(async ({ box }) => {
    const draining = new AbortController();
    const waiting = box.awaitMessage(TOPIC, WAIT, NEVER, draining.signal);
    draining.abort();
    assert.deepEqual((await waiting).messages, []);
    assert.deepEqual((await box.awaitMessage(TOPIC, WAIT, NEVER, draining.signal)).messages, []);
  });
});

test('[mailbox I-12] a receiver that left gets nothing; the message goes to the next one', async () => {
  await withMailbox(async ({ box, send }) => {
    const leaving = new AbortController();
    const first = box.awaitMessage(TOPIC, WAIT, leaving.signal, NEVER);
    const second = box.awaitMessage(TOPIC, WAIT, NEVER, NEVER);
    leaving.abort(new Error('left'));
    await assert.rejects(first, /left/);
    await send('one');
    const [message] = (await second).messages;
    assert.equal(message?.attempts, 1);
  });
});

test('[mailbox I-12] a receiver that leaves while its lease is written gives the message back at once', async () => {
  await withMailbox(async ({ box, clock, disk, send, receive }) => {
    const leaving = new AbortController();
    const first = box.awaitMessage(TOPIC, WAIT, leaving.signal, NEVER);
    await send('one');
    disk.hold('segments');
    leaving.abort(new Error('left'));
    await assert.rejects(first, /left/);
    disk.mend();
    await clock.settle();
    const [message] = await receive();
    assert.deepEqual([message?.attempts, message?.delivery], [1, 2]);
  });
});

test('[mailbox I-12] a delivery that is released is ready again at once, and is not an attempt', async () => {
  await withMailbox(
    async ({ box, reopen, send, receive }) => {
      await send('one');
      const first = await box.receive(TOPIC, {}, NEVER);
      const waiting = box.awaitMessage(TOPIC, WAIT, NEVER, NEVER);
      first.release();
      first.release();
      const second = await waiting;
      assert.deepEqual([second.messages[0]?.attempts, second.messages[0]?.delivery], [1, 2]);
      first.release();
      assert.equal(box.topic(TOPIC).ledger.leased, 1, 'the second delivery keeps its lease');
      second.release();
      const third = await box.receive(TOPIC, {}, NEVER);
      assert.deepEqual([third.messages[0]?.attempts, third.messages[0]?.delivery], [1, 3]);
      third.release();
      await reopen();
      const [message] = await receive();
      assert.deepEqual([message?.attempts, message?.delivery], [1, 4], 'a start makes it ready, too');
      assert.equal(box.topic(TOPIC).ledger.dead, 0, 'receivers that leave make no dead letter');
    },
    { max_deliveries: 1 },
  );
});

test('[mailbox I-12] a receiver that leaves after its nack or its ack changes nothing', async () => {
  await withMailbox(async ({ box, send, receive, nack, ack, advance }) => {
    await send('nacked');
    await send('acked');
    const delivery = await box.receive(TOPIC, { max: 2 }, NEVER);
    const [nacked, acked] = delivery.messages;
    await nack(nacked!, { delay_ms: 5000 });
    await ack(acked!);
    delivery.release();
    const { ready, delayed, acked: done } = box.topic(TOPIC).ledger;
    assert.deepEqual({ ready, delayed, done }, { ready: 0, delayed: 1, done: 1 });
    await advance(5000);
    const again = await receive();
    assert.deepEqual(texts(again), ['nacked']);
    assert.equal(again[0]!.attempts, 2);
  });
});

test('a delayed message, a returned one and the next of a key reach a waiting receiver', async () => {
  await withMailbox(async ({ box, advance, send, receive, nack, ack }) => {
    await send('later', { delay_ms: 5000 });
    const delayed = box.awaitMessage(TOPIC, WAIT, NEVER, NEVER);
    await advance(5000);
    const [message] = (await delayed).messages;
    assert.deepEqual(texts([message!]), ['later']);
    const returned = box.awaitMessage(TOPIC, WAIT, NEVER, NEVER);
    await nack(message!, { delay_ms: 0 });
    const [again] = (await returned).messages;
    await ack(again!);
    await send('k1', { key: 'k' });
    await send('k2', { key: 'k' });
    const [k1] = await receive();
    const next = box.awaitMessage(TOPIC, WAIT, NEVER, NEVER);
    await ack(k1!);
    assert.deepEqual(texts((await next).messages), ['k2']);
  });
});

test('[mailbox I-11] a receiver too many is refused with busy', async () => {
  await withMailbox(async ({ box }) => {
    const waiting = Array.from({ length: 4 }, () => box.awaitMessage(TOPIC, WAIT, NEVER, NEVER));
    await assert.rejects(box.awaitMessage(TOPIC, WAIT, NEVER, NEVER), { code: 'busy' });
    assert.equal(box.parts.receivers.busy_total, 1);
    box.parts.receivers.close();
    for (const each of waiting) assert.deepEqual((await each).messages, []);
  });
});

test('a lease that cannot be written is released, and the delivery does not count', async () => {
  await withMailbox(async ({ disk, clock, send, receive }) => {
    await send('one');
    disk.fail('segments', 'EIO');
    await assert.rejects(receive(), { code: 'not_ready' });
    disk.mend();
    await clock.advance(10_000);
    const [message] = await receive();
    assert.equal(message?.attempts, 1);
  });
});
