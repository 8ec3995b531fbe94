/** Full queues, slow backends and floods: requests are refused immediately and fairly, and never stall. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { FaultyBackend } from './faulty-backend.ts';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { B3, startService } from './support.ts';
import { eventually } from '@ron/testkit';

test('600 concurrent signatures: some are refused with Retry-After, all get a response, and refusals are counted', async () => {
  const backend = new FaultyBackend();
  await using kms = await startService({
    backend,
    flags: ['--server.max_inflight=2000', '--server.connection_limit_per_ip=2000', '--kms.sign_deadline=60s'],
  });
  const kid = await kms.create('ed25519');
  const refusals = (): Promise<number> => kms.metric('busy_rejections_total{queue="sign"}');
  backend.delay_ms = 5000;
  const asked = Array.from({ length: 600 }, () => kms.post('/sign', { kid, payload_b3: B3 }));
  await eventually('the queue is full', async () => (await refusals()) > 0);
  backend.delay_ms = 20;
  const replies = await Promise.all(asked);
  const refused = replies.filter(({ status }) => status !== 200);
  assert.ok(refused.length > 0 && refused.length < 600, `${refused.length} refused`);
  // [kms I-9]
  for (const reply of refused) assertRefusal(reply, 429, 'busy');
  assert.equal(await refusals(), refused.length);
  assert.equal(await kms.metric('queue_depth{queue="sign"}'), 0);
  assert.equal((await kms.post('/sign', { kid, payload_b3: B3 })).status, 200);
});

test('one tenant floods, another keeps its share', async () => {
  const backend = new FaultyBackend();
  const flags = ['--server.max_inflight=2000', '--server.connection_limit_per_ip=2000', '--kms.sign_deadline=60s'];
  await using kms = await startService({ backend, flags: [...flags, '--kms.signers=1', '--kms.sign_batch=8'] });
  const flood = await kms.create('ed25519', { tenant: 'flood' });
  const zoo = await kms.create('ed25519', { tenant: 'zoo' });
  backend.delay_ms = 5000;
  const ended: string[] = [];
  const sign = async (tenant: string, kid: string): Promise<void> => {
    const { status } = await kms.post('/sign', { kid, payload_b3: B3 });
    ended.push(`${tenant} ${status}`);
  };
  const floods = Array.from({ length: 200 }, () => sign('flood', flood));
  const depth = (): Promise<number> => kms.metric('queue_depth{queue="sign"}');
  await eventually('the flood waits in the queue', async () => (await depth()) > 180);
  const flooded = await depth();
  const zoos = Array.from({ length: 32 }, () => sign('zoo', zoo));
  await eventually('the other tenant waits too', async () => (await depth()) >= flooded + 32 - 8);
  const before = ended.length;
  backend.delay_ms = 20;
  await Promise.all(zoos);
  const meanwhile = ended.slice(before);
  await Promise.all(floods);
  assert.ok(
    ended.every((each) => each.endsWith('200')),
    'no request is refused: there is room for both',
  );
  // In order of arrival the whole flood would have come first. With fair turns each gets half.
  const share = 32 / meanwhile.length;
  assert.ok(share > 0.4, `the small tenant got ${(share * 100).toFixed(0)} % while it waited`);
});

test('a tenant that floods large batches is refused at its share, in time; another tenant and the checkpoints proceed', async () => {
  await using kms = await startService({ flags: ['--kms.sign_deadline=30s'] });
  const large = await kms.create('ml-dsa-65', { tenant: 'flood' });
  const small = await kms.create('ed25519', { tenant: 'zoo' });
  const items = Array.from({ length: 128 }, () => ({ kid: large, payload_b3: B3 }));
  const over = new AbortController();
  const refused: Reply[] = [];
  let batches = 0;
  const client = async (): Promise<void> => {
    while (!over.signal.aborted) {
      const reply = await kms.post('/sign', { items });
      if (reply.status === 200) {
        batches += 1;
        continue;
      }
      refused.push(reply);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const clients = Array.from({ length: 12 }, client);
  await eventually('the flood is at its share', () => refused.length > 8);
  const before = await kms.metric('kms_audit_entries{state="signed"}');
  const batches_before = batches;
  for (let at = 0; at < 20; at++) assert.equal((await kms.post('/sign', { kid: small, payload_b3: B3 })).status, 200);
  const meanwhile = batches - batches_before;
  await eventually('checkpoints proceed', async () => (await kms.metric('kms_audit_entries{state="signed"}')) > before);
  over.abort();
  await Promise.all(clients);
  for (const reply of refused) assertRefusal(reply, 429, 'busy');
  // At least two batches wait at any time: in order of arrival each of the 20 would have come after them.
  assert.ok(meanwhile < 20, `${meanwhile} batches were signed while the other tenant signed 20 times`);
});

test('requests of disconnected clients are not signed', async () => {
  const backend = new FaultyBackend();
  await using kms = await startService({ backend, flags: ['--kms.signers=1', '--kms.sign_batch=1'] });
  const kid = await kms.create('ed25519');
  backend.delay_ms = 400;
  const { calls } = backend;
  const first = kms.post('/sign', { kid, payload_b3: B3 });
  await eventually('the signer is busy', () => backend.calls > calls);
  const leaving = Array.from({ length: 5 }, () => {
    const { hostname, port } = new URL(kms.url);
    const socket = connect(Number(port), hostname);
    return { socket, closed: once(socket, 'close') };
  });
  const { authorization } = await kms.allow();
  const body = JSON.stringify({ kid, payload_b3: B3 });
  for (const { socket } of leaving) {
    socket.write(
      `POST /v1/kms/sign HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: ${authorization}\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
  }
  await eventually('they wait', async () => (await kms.metric('queue_depth{queue="sign"}')) === 5);
  for (const { socket } of leaving) socket.destroy();
  await Promise.all(leaving.map(({ closed }) => closed));
  assert.equal((await first).status, 200);
  backend.delay_ms = 0;
  assert.equal((await kms.post('/sign', { kid, payload_b3: B3 })).status, 200);
  assert.equal(backend.signatures, 2);
});

test('a hanging backend: requests end at their deadline, and the service recovers', async () => {
  const backend = new FaultyBackend();
  await using kms = await startService({ backend, flags: ['--kms.sign_deadline=1s'] });
  const kid = await kms.create('ed25519');
  backend.isHanging = true;
  const began_ms = performance.now();
  const replies = await Promise.all(Array.from({ length: 20 }, () => kms.post('/sign', { kid, payload_b3: B3 })));
  // [kms I-4]
  for (const reply of replies) assertRefusal(reply, 504, 'timeout');
  assert.ok(performance.now() - began_ms < 5000);
  assert.ok((await kms.metric('io_timeouts_total{op="sign"}')) >= 20);
  backend.isHanging = false;
  await eventually('it signs again', async () => (await kms.post('/sign', { kid, payload_b3: B3 })).status === 200);
});

test('bodies, batches and sets have limits', async () => {
  await using kms = await startService({ flags: ['--amnesia.enabled=true', '--kms.keys_max=6'] });
  const kid = await kms.create('ed25519', { purpose: 'raw' });
  const message_b64 = Buffer.alloc(65_536).toString('base64');
  assert.equal((await kms.post('/sign', { kid, message_b64 })).status, 200);
  const longer = Buffer.alloc(65_537).toString('base64');
  const refused = await kms.post('/sign', { kid, message_b64: longer });
  assert.ok([400, 413].includes(refused.status), refused.text);
  const item = { kid, message_b64: 'YQ==' };
  assertRefusal(await kms.post('/sign', { items: Array.from({ length: 129 }, () => item) }), 400, 'validation');
  assertRefusal(await kms.post('/sign', { items: [] }), 400, 'validation');
  assertRefusal(
    await kms.post('/sign', { kid_set: Array.from({ length: 9 }, () => kid), message_b64: 'YQ==' }),
    400,
    'validation',
  );
  const huge = await kms.send('POST', '/v1/kms/sign', {
    headers: { ...(await kms.allow()), 'content-type': 'application/json' },
    body: JSON.stringify({ kid, message_b64: 'A'.repeat(2 * 1024 * 1024) }),
  });
  // [kms I-10]
  assertRefusal(huge, 413, 'payload_too_large');
  await kms.create('ed25519');
  await kms.create('ed25519');
  assertRefusal(await kms.post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' }), 507, 'storage_full');
});
