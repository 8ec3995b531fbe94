/** An ordered send stores no message of a topic behind one that it refused or that still waits. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import type { OutgoingMessage, SendResult } from '@ron/proto';
import { texts, TOPIC, withMailbox, type TestBox } from './support.ts';

const ORDERED = { ordered: true } as const;
const outcomes = (results: readonly SendResult[]): string[] =>
  results.map((result) => ('error' in result ? result.error : result.duplicate ? 'duplicate' : 'stored'));
const message = (payload: string, more: Partial<OutgoingMessage> = {}): OutgoingMessage => ({
  topic: TOPIC,
  payload: Buffer.from(payload),
  ...more,
});

test('[mailbox I-11] an ordered send refuses the messages behind one that found no room, of its topic only', async () => {
  await withMailbox(
    async ({ box, receive }) => {
      const messages = [
        message('12345'),
        message('1234567'),
        message('1'),
        message('other', { topic: 'others' }),
        message('2'),
      ];
      assert.deepEqual(outcomes(await box.send(messages, NEVER)), ['stored', 'full', 'stored', 'stored', 'stored']);
      const results = await box.send(
        [message('1234567'), message('3'), message('4', { topic: 'others' })],
        NEVER,
        ORDERED,
      );
      assert.deepEqual(outcomes(results), ['full', 'full', 'stored']);
      assert.ok(results.every((result) => 'seq' in result || result.retryable !== false));
      assert.deepEqual(texts(await receive()), ['12345', '1', '2']);
      assert.equal(box.parts.topics.counts.of(TOPIC).sent.full, 3, 'each refusal is counted');
    },
    { max_bytes: 10 },
  );
});

test('[mailbox I-11] an ordered send refuses the messages behind one that never fits, but these may be sent again', async () => {
  await withMailbox(
    async ({ box }) => {
      const results = await box.send([message('x'.repeat(11)), message('1')], NEVER, ORDERED);
      assert.deepEqual(outcomes(results), ['full', 'full']);
      assert.deepEqual(
        results.map((result) => 'error' in result && result.retryable),
        [false, undefined],
      );
      assert.deepEqual(box.topics(), [], 'a topic without a message does not exist');
    },
    { max_bytes: 10 },
  );
});

test('[mailbox I-2] a conflict or duplicate in an ordered send does not stop the messages behind it', async () => {
  await withMailbox(async ({ box, send, receive }) => {
    await send('first', { idempotency_key: 'a' });
    const keyed = { idempotency_key: 'a' };
    const results = await box.send([message('else', keyed), message('first', keyed), message('next')], NEVER, ORDERED);
    assert.deepEqual(outcomes(results), ['conflict', 'duplicate', 'stored']);
    assert.deepEqual(texts(await receive()), ['first', 'next']);
  });
});

test('[mailbox I-6] behind a message whose first send is in flight and fails, an ordered send keeps its order', async () => {
  const arrivals = async ({ box, disk, clock, send, receive }: TestBox, ordered: boolean): Promise<string[]> => {
    disk.hold('segments');
    const before = send('before');
    await clock.settle();
    const leaving = new AbortController();
    const keyed = message('1', { idempotency_key: 'a' });
    const first = assert.rejects(box.send([keyed], leaving.signal), /left/);
    const second = box.send([keyed, message('2')], NEVER, { ordered });
    await clock.settle();
    leaving.abort(new Error('left'));
    disk.mend();
    await Promise.all([before, first, second]);
    return texts(await receive());
  };
  await withMailbox(async (mail) => assert.deepEqual(await arrivals(mail, true), ['before', '1', '2']));
  await withMailbox(async (mail) => assert.deepEqual(await arrivals(mail, false), ['before', '2', '1']));
});
