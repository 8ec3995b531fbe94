import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { texts, TOPIC, withMailbox } from './support.ts';

test('[mailbox I-4] an ack is answered after its sync, and its message never comes back', async () => {
  await withMailbox(async (mailbox) => {
    const { disk, clock, advance, reopen, send, receive, ack } = mailbox;
    await send('one');
    const [message] = await receive();
    disk.hold('segments');
    let isAnswered = false;
    const acking = ack(message!).finally(() => (isAnswered = true));
    for (let turn = 0; turn < 3; turn++) await clock.settle();
    assert.equal(isAnswered, false);
    // Its lease ends while the ack is syncing.
    await advance(60_000);
    assert.deepEqual(await receive(), []);
    disk.mend();
    assert.deepEqual(await acking, ['ok']);
    await advance(600_000);
    assert.deepEqual(await receive(), []);
    assert.deepEqual(await ack(message!), ['stale']);
    await reopen();
    await advance(600_000);
    assert.deepEqual(await receive(), []);
    assert.equal(mailbox.box.topic(TOPIC).ledger.acked, 1);
  });
});

test('[mailbox I-4] an ack whose sync fails changes nothing: the message is delivered again, or acked again', async () => {
  await withMailbox(async ({ disk, clock, advance, send, receive, ack, box }) => {
    await send('one');
    await send('two');
    const [one, two] = await receive();
    disk.fail('segments', 'EIO');
    await assert.rejects(ack(one!, two!), { code: 'not_ready' });
    disk.mend();
    await clock.advance(10_000);
    assert.deepEqual(box.topic(TOPIC).ledger.leased, 2);
    assert.deepEqual(await ack(one!), ['ok']);
    await advance(30_000);
    await advance(60_000);
    assert.deepEqual(texts(await receive()), ['two']);
  });
});

test('[mailbox I-4] a second ack of a delivery waits for the sync of the first and gets its result', async () => {
  await withMailbox(async ({ disk, clock, send, receive, ack }) => {
    await send('one');
    const [message] = await receive();
    disk.hold('segments');
    const first = ack(message!);
    await clock.settle();
    let isAnswered = false;
    const second = ack(message!, message!).finally(() => (isAnswered = true));
    for (let turn = 0; turn < 3; turn++) await clock.settle();
    assert.equal(isAnswered, false);
    disk.mend();
    assert.deepEqual([await first, await second], [['ok'], ['ok', 'ok']]);
  });
});

test('[mailbox I-4] if the first ack fails, the second one is executed', async () => {
  await withMailbox(async ({ box, disk, clock, send, receive, ack }) => {
    await send('one');
    const [message] = await receive();
    disk.hold('segments');
    const blocking = send('two');
    await clock.settle();
    const leaving = new AbortController();
    const first = box.ack(TOPIC, [message!.token], leaving.signal);
    const second = ack(message!);
    await clock.settle();
    leaving.abort(new Error('left'));
    await assert.rejects(first, /left/);
    disk.mend();
    await blocking;
    assert.deepEqual(await second, ['ok']);
    assert.equal(box.topic(TOPIC).ledger.acked, 1);
  });
});

test('[mailbox I-5] ack, nack and extend of an earlier delivery are stale and change nothing', async () => {
  await withMailbox(async ({ box, advance, send, receive, ack, nack }) => {
    await send('one');
    const [first] = await receive();
    await nack(first!, { delay_ms: 0 });
    const [second] = await receive();
    assert.equal(second!.delivery, 2);
    const before = box.topic(TOPIC).ledger;
    assert.deepEqual(await ack(first!), ['stale']);
    assert.deepEqual(await nack(first!, { dead: true }), ['stale']);
    assert.deepEqual(await box.extend(TOPIC, [first!.token], 60_000, NEVER), ['stale']);
    assert.deepEqual(box.topic(TOPIC).ledger, before);
    assert.deepEqual(await ack(second!), ['ok']);
    await advance(120_000);
    assert.deepEqual(await receive(), []);
  });
});

test('[mailbox I-5] tokens of another topic and malformed ones are unknown', async () => {
  await withMailbox(async ({ box, send, receive, ack }) => {
    await send('one');
    await send('other', { topic: 'others' });
    const [message] = await receive();
    const [other] = await receive({}, 'others');
    const [last] = message!.token.slice(-1);
    const tokens = [other!.token, '', 'x'.repeat(24), `${message!.token.slice(0, -1)}${last === 'A' ? 'B' : 'A'}`];
    assert.deepEqual(await box.ack(TOPIC, tokens, NEVER), ['unknown', 'unknown', 'unknown', 'unknown']);
    const forged = Buffer.from(message!.token, 'base64url');
    forged.writeUIntBE(2 ** 40, 0, 6);
    assert.deepEqual(await box.ack(TOPIC, [forged.toString('base64url')], NEVER), ['unknown'], 'never given out');
    assert.deepEqual(await box.ack('nothing', [message!.token], NEVER), ['unknown']);
    assert.deepEqual(await ack(message!), ['ok']);
  });
});

test('[mailbox I-5] a lease that ended without a new delivery can still be extended and acked', async () => {
  await withMailbox(async ({ box, advance, send, receive, ack }) => {
    await send('one');
    const [message] = await receive({ visibility_ms: 1000 });
    await advance(1000);
    assert.deepEqual(await box.extend(TOPIC, [message!.token], 30_000, NEVER), ['ok']);
    await advance(20_000);
    assert.deepEqual(await receive(), [], 'it is leased again');
    await advance(10_000);
    assert.deepEqual(await ack(message!), ['ok']);
    await advance(60_000);
    assert.deepEqual(await receive(), []);
  });
});
