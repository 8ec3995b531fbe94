import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { stored, texts, TOPIC, withMailbox } from './support.ts';

test('[mailbox I-1] a send is answered after its sync, and its message is invisible before', async () => {
  await withMailbox(async ({ box, disk, clock, send, receive }) => {
    await send('first');
    await receive();
    disk.hold('segments');
    let isAnswered = false;
    const sending = send('second').finally(() => (isAnswered = true));
    await clock.settle();
    await clock.settle();
    assert.equal(isAnswered, false);
    assert.deepEqual(box.topic(TOPIC).ledger.sent, 1);
    assert.deepEqual((await box.receive(TOPIC, {}, NEVER)).messages, []);
    assert.deepEqual(await box.peek(TOPIC, 10, NEVER), []);
    disk.mend();
    stored(await sending);
    assert.deepEqual(texts(await receive()), ['second']);
  });
});

test('[mailbox I-1] a send whose sync fails is refused, stays invisible, and frees its room', async () => {
  await withMailbox(
    async ({ box, disk, clock, send, receive }) => {
      stored(await send('first'));
      disk.fail('segments', 'EIO');
      await assert.rejects(send('second'), { code: 'not_ready' });
      disk.mend();
      await clock.advance(10_000);
      assert.deepEqual(texts(await receive()), ['first']);
      stored(await send('third'));
      assert.deepEqual(texts(await receive()), ['third']);
      assert.deepEqual(await send('fourth'), { error: 'full', detail: 'the topic has no room for the message' });
      assert.equal(box.topic(TOPIC).ledger.sent, 2);
    },
    { max_messages: 2 },
  );
});

test('a topic whose first send failed does not exist', async () => {
  await withMailbox(async ({ box, disk, clock, send }) => {
    disk.fail('segments', 'EIO');
    await assert.rejects(send('first'));
    disk.mend();
    assert.deepEqual(box.topics(), []);
    assert.throws(() => box.topic(TOPIC), { code: 'not_found' });
    assert.equal(box.parts.topics.counts.others.sent.failed, 1);
    await clock.advance(10_000);
    stored(await send('first'));
    assert.equal(box.topics().length, 1);
  });
});

test('a send whose signal aborts before it is written stores nothing', async () => {
  await withMailbox(async ({ box, disk, clock, send, receive }) => {
    stored(await send('first'));
    disk.hold('segments');
    const blocking = send('second');
    await clock.settle();
    const leaving = new AbortController();
    const sending = box.send([{ topic: TOPIC, payload: Buffer.from('third') }], leaving.signal);
    leaving.abort(new Error('left'));
    await assert.rejects(sending, /left/);
    disk.mend();
    await blocking;
    assert.deepEqual(texts(await receive()), ['first', 'second']);
  });
});
