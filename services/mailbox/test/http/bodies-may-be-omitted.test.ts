/** A request without a body, as `curl -X POST` sends it, is answered at once: fields have defaults, and a message may be empty. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RawClient } from '@ron/testkit/service';
import { AMNESIA, startService } from '../support.ts';

test('send, receive and replay need no body', async () => {
  await using mailbox = await startService({ flags: AMNESIA });
  const { authorization } = await mailbox.allow();
  const post = async (path: string): Promise<{ status: number; json: unknown }> => {
    const client = await RawClient.open(Number(new URL(mailbox.url).port));
    client.head('POST', `/v1/mailbox${path}`, { Authorization: authorization, Connection: 'close' });
    const text = await client.rest();
    return { status: Number(text.split(' ')[1]), json: JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4)) };
  };
  assert.equal((await post('/jobs')).status, 201);
  const { messages } = (await post('/jobs/receive')).json as { messages: { payload: string }[] };
  assert.deepEqual([messages.length, messages[0]?.payload], [1, '']);
  assert.deepEqual((await post('/jobs/dlq/replay')).json, { replayed: 0, left: 0 });
  assert.equal((await post('/jobs/ack')).status, 400, 'tokens have no default');
});
