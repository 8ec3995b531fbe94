/** One topic that is full or flooded beside quiet ones. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FaultyDisk } from '@ron/log/testing';
import { bytesOf, eventually } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { startService, type TestMailbox } from './support.ts';

const payload = bytesOf(100).toString('base64');

const send = (service: TestMailbox, ...topics: string[]): Promise<Reply> =>
  service.call('POST', '/v1/mailbox/send', { messages: topics.map((topic) => ({ topic, payload })) });

test('[mailbox I-11] a full topic refuses its sends; others accept theirs, even within one batch', async () => {
  await using service = await startService();
  assert.equal((await service.call('PUT', '/v1/mailbox/small', { max_messages: 2 })).status, 200);
  const { results } = (await send(service, 'small', 'large', 'small', 'small', 'large')).json;
  assert.deepEqual(
    results.map((result: { error?: string }) => result.error),
    [undefined, undefined, undefined, 'full', undefined],
  );
  const headers = { ...(await service.allow()), 'content-type': 'application/octet-stream' };
  const single = (topic: string): Promise<Reply> =>
    service.send('POST', `/v1/mailbox/${topic}`, { headers, body: 'x' });
  assertRefusal(await single('small'), 507, 'storage_full');
  assert.equal((await single('large')).status, 201);
  const { status, json } = await service.send('GET', '/readyz');
  assert.equal(status, 200);
  assert.ok(json.degraded.includes('topics'), JSON.stringify(json));
  const { messages } = (await service.call('POST', '/v1/mailbox/small/receive', {})).json;
  await service.call('POST', '/v1/mailbox/small/ack', { tokens: [messages[0].token] });
  assert.equal((await single('small')).status, 201, 'an ack makes room');
});

test('[mailbox I-11] a quiet topic overtakes the queue of a flooded one', async () => {
  const disk = new FaultyDisk();
  await using service = await startService({ fs: disk, flags: ['--mailbox.send_workers=1'] });
  await send(service, 'flood', 'quiet');
  disk.hold('segments', 'sync');
  const order: string[] = [];
  const sendNoted = async (topic: string): Promise<void> => {
    const { status } = await send(service, topic);
    order.push(status === 200 ? topic : `${topic}: ${status}`);
  };
  const flood = Array.from({ length: 100 }, () => sendNoted('flood'));
  const depth = (): Promise<number> => service.metric('queue_depth{queue="work"}');
  await eventually('the flood waits', async () => (await depth()) >= 90);
  const quiet = sendNoted('quiet');
  await eventually('the quiet send waits', async () => (await depth()) >= 91);
  disk.mend();
  await Promise.all([...flood, quiet]);
  const place = order.indexOf('quiet');
  assert.ok(
    place >= 0 && place <= 10,
    `${place} sends of the flooded topic were answered first: ${[...new Set(order)].join()}`,
  );
});

test('[mailbox I-11] a refused send to a topic whose policy is syncing takes nothing from it or from other new topics', async () => {
  const disk = new FaultyDisk();
  await using service = await startService({ fs: disk, flags: ['--topics.max_bytes=1KiB'] });
  const headers = { ...(await service.allow()), 'content-type': 'text/plain' };
  const post = (topic: string, body: string): Promise<Reply> =>
    service.send('POST', `/v1/mailbox/${topic}`, { headers, body });
  const { state } = service.mailbox.mailbox.parts;
  await post('first', 'of first');
  disk.hold('segments', 'sync');
  const policy = service.call('PUT', '/v1/mailbox/new', { max_bytes: 1024 * 1024 });
  await eventually('the policy is syncing', () => state.topic('new') !== undefined);
  assertRefusal(await post('new', 'x'.repeat(2000)), 413, 'payload_too_large');
  const other = post('other', 'of other');
  await eventually('the send waits', () => state.topic('other') !== undefined);
  disk.mend();
  assert.equal((await policy).status, 200);
  assert.equal((await other).status, 201);
  for (const topic of ['new', 'late']) assert.equal((await post(topic, `of ${topic}`)).status, 201);
  for (const topic of ['first', 'new', 'other', 'late']) {
    const { messages } = (await service.call('POST', `/v1/mailbox/${topic}/receive`, { max: 9 })).json;
    const payloads = messages.map(({ payload: text }: { payload: string }) => Buffer.from(text, 'base64').toString());
    assert.deepEqual(payloads, [`of ${topic}`]);
  }
});
