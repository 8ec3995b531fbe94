import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { stored, texts, TOPIC, withMailbox } from './support.ts';

const KEY = { idempotency_key: 'order 7' };

test('[mailbox I-2] a repeated key gets the first id within the window, even after a restart', async () => {
  await withMailbox(async ({ clock, reopen, send, receive, ack }) => {
    const first = stored(await send('body', KEY));
    const [message] = await receive();
    await ack(message!);
    assert.deepEqual({ ...first, duplicate: true }, await send('body', KEY));
    await reopen();
    assert.deepEqual({ ...first, duplicate: true }, await send('body', KEY));
    await clock.advance(301_000);
    const second = stored(await send('body', KEY));
    assert.equal(second.duplicate, false);
    assert.notEqual(second.id, first.id);
  });
});

test('[mailbox I-2] a key with another body is a conflict with the first id', async () => {
  await withMailbox(async ({ send, receive }) => {
    const { id } = stored(await send('body', KEY));
    const conflict = await send('other', KEY);
    assert.ok('error' in conflict);
    assert.deepEqual([conflict.error, conflict.id], ['conflict', id]);
    assert.equal(stored(await send('other', { ...KEY, topic: 'others' })).duplicate, false, 'keys belong to a topic');
    assert.deepEqual(texts(await receive()), ['body']);
  });
});

test('[mailbox I-2] a repeated key waits for the sync of the first send', async () => {
  await withMailbox(async ({ disk, clock, send, receive }) => {
    await send('other');
    disk.hold('segments');
    const first = send('body', KEY);
    await clock.settle();
    let isAnswered = false;
    const second = send('body', KEY).finally(() => (isAnswered = true));
    const third = send('another body', KEY);
    for (let turn = 0; turn < 5; turn++) await clock.settle();
    assert.equal(isAnswered, false);
    disk.mend();
    const { id } = stored(await first);
    assert.deepEqual([stored(await second).id, stored(await second).duplicate], [id, true]);
    const conflict = await third;
    assert.ok('error' in conflict);
    assert.equal(conflict.id, id);
    assert.deepEqual(texts(await receive()), ['other', 'body']);
  });
});

test('[mailbox I-2] if the first send fails, the repeated one is stored itself', async () => {
  await withMailbox(async ({ box, disk, clock, send, receive }) => {
    await send('other');
    disk.hold('segments');
    const leaving = new AbortController();
    const blocking = send('blocking');
    await clock.settle();
    const first = box.send([{ topic: TOPIC, payload: Buffer.from('body'), ...KEY }], leaving.signal);
    const second = send('body', KEY);
    await clock.settle();
    leaving.abort(new Error('left'));
    await assert.rejects(first, /left/);
    disk.mend();
    await blocking;
    assert.equal(stored(await second).duplicate, false);
    assert.deepEqual(texts(await receive()), ['other', 'blocking', 'body']);
  });
});

test('[mailbox I-2] the same key twice in one batch is one message', async () => {
  await withMailbox(async ({ box, receive }) => {
    const message = { topic: TOPIC, payload: Buffer.from('body'), ...KEY };
    const results = await box.send([message, message, { ...message, payload: Buffer.from('x') }], NEVER);
    const [first, second, third] = results;
    assert.deepEqual({ ...first, duplicate: true }, second);
    assert.ok('error' in third! && third.error === 'conflict');
    assert.deepEqual(texts(await receive()), ['body']);
  });
});

test('topics below hooks. remember keys for a day', async () => {
  await withMailbox(async ({ advance, send }) => {
    const hook = { ...KEY, topic: 'hooks.github' };
    const first = stored(await send('body', hook));
    await advance(3_600_000);
    assert.deepEqual(await send('body', hook), { ...first, duplicate: true });
  });
});

test('[mailbox I-2] a clock that is ahead for a while neither shortens nor prolongs the window', async () => {
  await withMailbox(async ({ clock, advance, send, reopen }) => {
    const wall_ms = clock.wall_ms.bind(clock);
    const before = stored(await send('body', { idempotency_key: 'before' }));
    clock.wall_ms = () => wall_ms() + 15 * 86_400_000;
    const during = stored(await send('body', { idempotency_key: 'during' }));
    await advance(30_000);
    clock.wall_ms = wall_ms;
    assert.deepEqual(await send('body', { idempotency_key: 'before' }), { ...before, duplicate: true });
    assert.deepEqual(await send('body', { idempotency_key: 'during' }), { ...during, duplicate: true });
    await reopen();
    assert.deepEqual(await send('body', { idempotency_key: 'during' }), { ...during, duplicate: true });
    await advance(301_000);
    for (const idempotency_key of ['before', 'during'])
      assert.equal(stored(await send('body', { idempotency_key })).duplicate, false);
  });
});
