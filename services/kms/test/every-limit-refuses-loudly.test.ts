/** Full queues, slow backends and floods: refused at once, in fairness, and never a stall. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MoodyBackend } from './moody-backend.ts';
import { assertRefusal, B3, eventually, startService } from './support.ts';

test('600 signatures at once: some are refused with Retry-After, all are answered, and the refusals are counted', async () => {
  const backend = new MoodyBackend();
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
  for (const reply of refused) assertRefusal(reply, 429, 'busy');
  assert.equal(await refusals(), refused.length);
  assert.equal(await kms.metric('queue_depth{queue="sign"}'), 0);
  assert.equal((await kms.post('/sign', { kid, payload_b3: B3 })).status, 200);
});

test('one tenant floods, another keeps its share', async () => {
  const backend = new MoodyBackend();
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
    'nobody is refused: there is room for both',
  );
  // In order of arrival all of the flood would have come first. In turns each gets half.
  const share = 32 / meanwhile.length;
  assert.ok(share > 0.4, `the small tenant got ${(share * 100).toFixed(0)} % while it waited`);
});

test('a backend that hangs: the deadline answers, and the service goes on afterwards', async () => {
  const backend = new MoodyBackend();
  await using kms = await startService({ backend, flags: ['--kms.sign_deadline=300ms'] });
  const kid = await kms.create('ed25519');
  backend.isHanging = true;
  const began_ms = performance.now();
  const replies = await Promise.all(Array.from({ length: 20 }, () => kms.post('/sign', { kid, payload_b3: B3 })));
  for (const reply of replies) assertRefusal(reply, 504, 'timeout');
  assert.ok(performance.now() - began_ms < 5000);
  assert.ok((await kms.metric('io_timeouts_total{op="sign"}')) >= 20);
  backend.isHanging = false;
  await eventually('it signs again', async () => (await kms.post('/sign', { kid, payload_b3: B3 })).status === 200);
});

test('bodies, batches and sets have limits', async () => {
  await using kms = await startService({ flags: ['--amnesia.enabled=true', '--kms.keys_max=4'] });
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
  assertRefusal(huge, 413, 'payload_too_large');
  await kms.create('ed25519');
  await kms.create('ed25519');
  assertRefusal(await kms.post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' }), 507, 'storage_full');
});
