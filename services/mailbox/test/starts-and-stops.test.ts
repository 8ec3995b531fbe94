import assert from 'node:assert/strict';
import { access } from 'node:fs/promises';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { tempDir } from '@ron/testkit';
import { AMNESIA, startService } from './support.ts';

test('health, readiness, metrics, version and OpenAPI are answered', async () => {
  await using service = await startService();
  for (const path of ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json'])
    assert.equal((await service.send('GET', path)).status, 200, path);
});

test('a message is sent, received and acknowledged, and a restart knows it', async () => {
  await using temp = await tempDir();
  {
    await using service = await startService({ dir: temp.path });
    const sent = await service.call('POST', '/v1/mailbox/jobs', { body: 'hello' });
    assert.equal(sent.status, 201, sent.text);
    assert.equal((await service.call('POST', '/v1/mailbox/jobs', { body: 'again' })).status, 201);
    const received = await service.call('POST', '/v1/mailbox/jobs/receive', { max: 1 });
    assert.equal(received.status, 200, received.text);
    const [message] = received.json.messages;
    assert.equal(message.seq, sent.json.seq);
    const acked = await service.call('POST', '/v1/mailbox/jobs/ack', { tokens: [message.token] });
    assert.deepEqual(acked.json, { results: ['ok'] });
  }
  await using service = await startService({ dir: temp.path });
  const { ledger } = service.mailbox.mailbox.topic('jobs');
  assert.deepEqual(ledger, { sent: 2, acked: 1, ready: 1, delayed: 0, leased: 0, dead: 0, gone: 0 });
});

test('in amnesia no directory is created', async () => {
  await using service = await startService({ flags: AMNESIA });
  assert.equal((await service.send('GET', '/readyz')).status, 200);
  await assert.rejects(access(service.dir), { code: 'ENOENT' });
});

test('everything that is declared is built', async () => {
  await using service = await startService({ flags: AMNESIA });
  const { runtime, mailbox } = service.mailbox;
  await mailbox.send([{ topic: 'jobs', payload: Buffer.from('x') }], NEVER);
  assert.equal((await service.call('POST', '/v1/mailbox/jobs/receive', { max: 1, wait_ms: 1 })).status, 200);
  assert.equal((await service.call('POST', '/v1/mailbox/jobs/receive', { max: 1, wait_ms: 1 })).status, 200);
  assert.equal((await service.call('POST', '/admin/prove')).status, 202);
  for (const name of ['read', 'write', 'send', 'hold'] as const) runtime.deadline(name);
  assert.deepEqual(runtime.unbuilt(), []);
});
