/** Many or large dead letters: a call stays within its deadline, and listings leave the workers to acks. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { MAILBOX_LIMITS } from '@ron/proto';
import { TOPIC, withMailbox, type TestBox } from './support.ts';

const MIB = 1024 * 1024;

async function makeDead({ box }: TestBox, count: number, bytes: number): Promise<void> {
  for (let sent = 0; sent < count; sent++) await box.send([{ topic: TOPIC, payload: Buffer.alloc(bytes) }], NEVER);
  const { messages } = await box.receive(TOPIC, { max: count, bytes_max: MAILBOX_LIMITS.receive_bytes_max }, NEVER);
  assert.equal(messages.length, count);
  await box.nack(
    TOPIC,
    messages.map(({ token }) => token),
    { dead: true, error: 'e'.repeat(1024) },
    NEVER,
  );
}

test('a replay of large dead letters stores one batch at a time, and repeated calls store all', async () => {
  await withMailbox(
    async (mail) => {
      await makeDead(mail, 5, MIB);
      const replay = () => mail.box.replayDead(TOPIC, { limit: 128 }, NEVER);
      assert.deepEqual(await replay(), { replayed: 2, left: 3 });
      assert.deepEqual(await replay(), { replayed: 2, left: 1 });
      assert.deepEqual(await replay(), { replayed: 1, left: 0 });
      assert.deepEqual(await replay(), { replayed: 0, left: 0 });
    },
    { max_bytes: 16 * MIB, dead_max_bytes: 16 * MIB },
  );
});

test('a page of dead letters reads the record of their errors once', async (t) => {
  await withMailbox(async (mail) => {
    await makeDead(mail, 100, 10);
    const read = t.mock.method(mail.box.parts.log.segments, 'read');
    const { dead } = await mail.box.deadLetters(TOPIC, 0, 128, NEVER);
    assert.equal(dead.filter(({ error }) => error?.length === 1024).length, 100);
    assert.equal(read.mock.callCount(), 1);
  });
});

test('[mailbox I-11] more than eight listings at a time are refused, and acks go on', async () => {
  await withMailbox(async (mail) => {
    await makeDead(mail, 10, 10);
    await mail.send('work');
    const [message] = await mail.receive();
    mail.disk.hold('segments', 'read');
    const listings = Array.from({ length: 8 }, () => mail.box.deadLetters(TOPIC, 0, 10, NEVER));
    await assert.rejects(mail.box.deadLetters(TOPIC, 0, 10, NEVER), { code: 'busy' });
    assert.deepEqual(await mail.ack(message!), ['ok']);
    mail.disk.mend();
    for (const { dead } of await Promise.all(listings)) assert.equal(dead.length, 10);
    assert.equal((await mail.box.deadLetters(TOPIC, 0, 10, NEVER)).dead.length, 10);
  });
});
