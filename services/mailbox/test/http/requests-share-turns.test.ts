/** Requests that are executed together do not keep the event loop from everything else. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BATCH_MEDIA_TYPE, encodeBatch, type OutgoingMessage, type SendResult } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { startStub } from './stub-mailbox.ts';

const REQUESTS = 12;
const MESSAGES = 128;

test('sends that wait together are executed in several turns of the event loop', async () => {
  const first = Promise.withResolvers<void>();
  let turn = 0;
  const byTurn: number[] = [];
  const send = async (messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]> => {
    if (byTurn.length === 0) await first.promise;
    byTurn[turn] = (byTurn[turn] ?? 0) + messages.length;
    return messages.map((_, seq) => ({ id: '', seq, duplicate: false, b3: '' }));
  };
  await using stub = await startStub({ operations: { send }, send_ms: 20_000 });
  const payload = new Uint8Array(1);
  const items = Array.from({ length: MESSAGES }, () => ({ head: { topic: 'jobs' }, payload }));
  const body = Buffer.concat(encodeBatch(items));
  const post = async (): Promise<number> => {
    const headers = { 'content-type': BATCH_MEDIA_TYPE };
    const answer = await fetch(`${stub.url}/v1/mailbox/send`, { method: 'POST', headers, body });
    await answer.arrayBuffer();
    return answer.status;
  };
  const answers = Promise.all(Array.from({ length: REQUESTS }, post));
  await eventually(
    'all requests but the one that is executed are queued',
    () => stub.queues.send.depth === REQUESTS - 1,
  );
  let isOver = false;
  const count = (): void => {
    turn += 1;
    if (!isOver) setImmediate(count);
  };
  count();
  first.resolve();
  assert.deepEqual(new Set(await answers), new Set([200]));
  isOver = true;
  const counts = byTurn.filter((messages) => messages > 0);
  assert.equal(
    counts.reduce((sum, messages) => sum + messages, 0),
    REQUESTS * MESSAGES,
  );
  assert.ok(Math.max(...counts) <= 3 * MESSAGES, `${counts.join(', ')} messages in a turn`);
});
