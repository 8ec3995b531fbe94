/** [mailbox I-8] Every dead letter is in a log line; a call has one line, however many messages it names. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import type { MailboxEvent } from '../../src/events.ts';
import { TOPIC, withMailbox, type TestBox } from './support.ts';

const MESSAGES = 1024;
const BATCH = 128;

const counted = (events: readonly MailboxEvent[], kind: MailboxEvent['kind']): number =>
  events.reduce((sum, event) => sum + (event.kind === kind && 'count' in event ? event.count : 0), 0);

async function sendMany({ box }: TestBox, count: number): Promise<void> {
  for (let sent = 0; sent < count; sent += BATCH)
    await box.send(
      Array.from({ length: BATCH }, () => ({ topic: TOPIC, payload: Buffer.from('x') })),
      NEVER,
    );
}

test('dead letters that are made, replayed and deleted by the hundred are all in one line for each call', async () => {
  await withMailbox(
    async (mail) => {
      const { box, events, disk } = mail;
      await sendMany(mail, MESSAGES);
      const tokens: string[][] = [];
      for (let received = 0; received < MESSAGES; received += BATCH)
        tokens.push((await mail.receive({ max: BATCH })).map(({ token }) => token));
      events.length = 0;
      // One sync for all of them.
      disk.hold('segments', 'sync');
      const nacks = tokens.map((some) => box.nack(TOPIC, some, { dead: true }, NEVER));
      while (box.parts.log.segments.stats.waiting_bytes === 0) await new Promise((resolve) => setImmediate(resolve));
      disk.mend();
      await Promise.all(nacks);
      await box.parts.background.drained();
      assert.equal(counted(events, 'messages are dead'), MESSAGES);
      assert.equal(events.length, tokens.length, 'one line for each call');

      events.length = 0;
      assert.equal((await box.replayDead(TOPIC, { limit: BATCH }, NEVER)).replayed, BATCH);
      assert.equal((await box.deleteDead(TOPIC, { limit: 2 * BATCH }, NEVER)).deleted, 2 * BATCH);
      assert.equal(counted(events, 'dead letters removed'), 3 * BATCH);
      assert.deepEqual(
        events.map((event) => event.kind === 'dead letters removed' && event.by),
        ['replay', 'delete', 'delete'],
      );
    },
    { max_messages: 2 * MESSAGES, dead_max_messages: 2 * MESSAGES },
  );
});

test('a full topic is logged once a minute, even if smaller messages fit in between', async () => {
  await withMailbox(
    async ({ box, clock, events }) => {
      const batch = Array.from({ length: BATCH }, (_, index) => ({
        topic: TOPIC,
        payload: Buffer.alloc(index % 2 === 0 ? 0 : 600),
      }));
      const lines = (): number => events.filter(({ kind }) => kind === 'topic full').length;
      await box.send(batch, NEVER);
      await box.send(batch, NEVER);
      assert.equal(lines(), 1);
      await clock.advance(60_000);
      await box.send(batch, NEVER);
      assert.equal(lines(), 2);
    },
    { max_bytes: 1000 },
  );
});
