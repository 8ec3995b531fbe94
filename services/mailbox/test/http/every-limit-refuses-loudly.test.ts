/** [mailbox I-11] Every limit of mailbox refuses with its code and is counted, while other requests are served. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { sched } from '@ron/kernel';
import type { SendResult } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { assertRefusal, send, type Reply } from '@ron/testkit/service';
import type { MailboxOperations } from '../../src/mailbox/operations.ts';
import { AMNESIA, startService, type TestMailbox } from '../support.ts';
import { QUEUE_CAPACITY, startStub } from './stub-mailbox.ts';

const HEALTH = ['/healthz', '/metrics', '/version'];
const base = '/v1/mailbox';

async function assertHealthy(mailbox: TestMailbox): Promise<void> {
  for (const path of HEALTH) assert.equal((await mailbox.send('GET', path)).status, 200, path);
}

suite('limits', () => {
  test('the 257th topic is refused, in both forms and by a policy; the others go on', async () => {
    await using mailbox = await startService({ flags: AMNESIA });
    const messages = Array.from({ length: 257 }, (_, index) => ({ topic: `t${index}`, payload: '' }));
    for (const from of [0, 128])
      await mailbox.call('POST', `${base}/send`, { messages: messages.slice(from, from + 128) });
    const last = messages.slice(254);
    const { results } = (await mailbox.call('POST', `${base}/send`, { messages: last })).json;
    assert.deepEqual(
      results.map(({ error }: { error?: string }) => error),
      [undefined, undefined, 'full'],
    );
    const { topics } = (await mailbox.call('GET', base)).json;
    assert.equal(topics.length, 256);
    const headers = await mailbox.allow();
    assertRefusal(await mailbox.send('POST', `${base}/one_more`, { headers, body: 'x' }), 507, 'storage_full');
    assertRefusal(await mailbox.call('PUT', `${base}/one_more`, {}), 507, 'storage_full');
    const { gates } = (await mailbox.send('GET', '/readyz')).json;
    const gate = gates.find((each: { gate: string }) => each.gate === 'topics');
    assert.equal(gate.reason, 'there are 256 topics already');
    assert.equal((await mailbox.send('POST', `${base}/t7`, { headers, body: 'x' })).status, 201);
    assert.equal((await mailbox.call('GET', base)).json.topics.length, 256);
    assert.ok((await mailbox.metric('mailbox_sent_total{topic="other",result="full"}')) >= 2);
  });

  test('without auto_topics only a policy creates a topic', async () => {
    await using mailbox = await startService({ flags: [...AMNESIA, '--mailbox.auto_topics=false'] });
    const headers = await mailbox.allow();
    assertRefusal(await mailbox.send('POST', `${base}/jobs`, { headers, body: 'x' }), 404, 'not_found');
    assert.equal((await mailbox.call('PUT', `${base}/jobs`, {})).status, 200);
    assert.equal((await mailbox.send('POST', `${base}/jobs`, { headers, body: 'x' })).status, 201);
  });

  test('one long poll more than holds_max gets 429 with Retry-After, and a place again once one has left', async () => {
    await using mailbox = await startService({ flags: [...AMNESIA, '--mailbox.holds_max=3'] });
    const leaving = new AbortController();
    const headers = { ...(await mailbox.allow()), 'content-type': 'application/json' };
    const poll = (signal?: AbortSignal): Promise<Reply> =>
      mailbox.send('POST', `${base}/quiet/receive`, {
        headers,
        body: '{"wait_ms":20000}',
        ...(signal !== undefined && { signal }),
      });
    const waits = [poll(leaving.signal), poll(), poll()];
    const depth = (): Promise<number> => mailbox.metric('queue_depth{queue="holds"}');
    await eventually('three wait', async () => (await depth()) === 3);
    assertRefusal(await poll(), 429, 'busy');
    assert.equal(await mailbox.metric('busy_rejections_total{queue="holds",lane="holds"}'), 1);
    leaving.abort();
    await assert.rejects(waits[0]!);
    await eventually('one has left', async () => (await depth()) === 2);
    const late = poll();
    await eventually('three wait again', async () => (await depth()) === 3);
    await assertHealthy(mailbox);
    const messages = Array.from({ length: 3 }, () => ({ topic: 'quiet', payload: '' }));
    await mailbox.call('POST', `${base}/send`, { messages });
    for (const reply of await Promise.all([waits[1]!, waits[2]!, late])) {
      assert.equal(reply.status, 200);
      assert.equal(reply.json.messages.length, 1);
    }
  });

  test('a full queue of sends gets 429 with Retry-After; settles and reads are served meanwhile', async () => {
    const held = sched.park<readonly SendResult[]>('test.send');
    const operations: Partial<MailboxOperations> = {
      send: () => held.promise,
      ack: () => Promise.resolve(['unknown']),
      topics: () => [],
    };
    await using stub = await startStub({ operations, send_ms: 60_000 });
    const post = (path: string, body: string): Promise<Reply> =>
      send(stub.url, 'POST', `${base}${path}`, { headers: { 'content-type': 'application/json' }, body });
    // One is with the worker, 16 wait.
    const accepted = [post('/jobs', 'x')];
    await eventually('the worker has one', () => stub.queues.send.running === 1);
    for (let count = 0; count < QUEUE_CAPACITY; count += 1) accepted.push(post('/jobs', 'x'));
    await eventually('the queue is full', () => stub.queues.send.depth === QUEUE_CAPACITY);
    for (const path of ['/jobs', '/send']) {
      const body = JSON.stringify({ messages: [{ topic: 'jobs', payload: '' }] });
      assertRefusal(await post(path, body), 429, 'busy');
    }
    assert.deepEqual((await post('/jobs/ack', '{"tokens":["x"]}')).json, { results: ['unknown'] });
    assert.equal((await send(stub.url, 'GET', base)).status, 200);
    held.wake([{ id: '01J9ZK3Q7BC4D8WZ1V00A7K2M4', seq: 1, duplicate: false, b3: `b3:${'0'.repeat(64)}` }]);
    for (const reply of await Promise.all(accepted)) assert.equal(reply.status, 201, reply.text);
  });
});
