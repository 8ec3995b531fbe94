/** Workers that die and backends that become unavailable, and the operations that continue meanwhile. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missing, RemoteHsm, TEST_TOOLS } from '@ron/custody/testing';
import { FaultyBackend } from './faulty-backend.ts';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { B3, KEK, startService } from './support.ts';
import { eventually } from '@ron/testkit';

test('signers that are killed under load restart, no request hangs, and readiness is unaffected', async () => {
  const backend = new FaultyBackend();
  await using kms = await startService({ backend });
  const kid = await kms.create('ed25519');
  backend.delay_ms = 5;
  const over = new AbortController();
  const statuses = new Map<number, number>();
  const client = async (): Promise<void> => {
    while (!over.signal.aborted) {
      const { status } = await kms.post('/sign', { kid, payload_b3: B3 });
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  };
  const clients = Array.from({ length: 32 }, client);
  const { supervisor } = kms.kms.runtime;
  for (let index = 0; index < 4; index++) {
    supervisor.kill('signer_pool', index);
    assert.equal((await kms.send('GET', '/readyz')).status, 200);
  }
  await eventually(
    'all were started again',
    async () => (await kms.metric('tasks_restarted_total{kind="signer_pool"}')) >= 4,
  );
  const before = statuses.get(200) ?? 0;
  await eventually('the pool signs again', () => (statuses.get(200) ?? 0) > before + 100);
  over.abort();
  await Promise.all(clients);
  assert.equal((await kms.send('GET', '/readyz')).status, 200);
  assert.deepEqual([...statuses.keys()], [200], 'requests in progress are still served');
});

test('backend unavailable: signing is 503 with Retry-After, verification continues, and signing recovers automatically', async () => {
  const backend = new FaultyBackend();
  await using kms = await startService({ backend, flags: ['--kms.keep_interval=20ms'] });
  const kid = await kms.create('ed25519');
  const { sigs } = (await kms.post('/sign', { kid, payload_b3: B3 })).json;
  const check = { kid, payload_b3: B3, sigs };
  assert.equal((await kms.post('/verify', check)).json.cache_age_ms, undefined);
  backend.isUnavailable = true;
  const began_ms = performance.now();
  assertRefusal(await kms.post('/sign', { kid, payload_b3: B3 }), 503, 'not_ready');
  assertRefusal(await kms.post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' }), 503, 'not_ready');
  assert.ok(performance.now() - began_ms < 2000);
  await eventually('the cache age is reported', async () => (await kms.post('/verify', check)).json.cache_age_ms > 0);
  const verified = await kms.post('/verify', check);
  assert.deepEqual([verified.status, verified.json.ok], [200, true], verified.text);
  const ready = await kms.send('GET', '/readyz');
  assert.equal(ready.status, 200);
  assert.deepEqual(ready.json.degraded, ['backend']);
  assert.equal((await kms.send('GET', '/readyz?lane=sign')).status, 503);
  assert.ok((await kms.metric('verify_cache_age_ms')) > 0);
  backend.isUnavailable = false;
  await eventually('it signs again', async () => (await kms.post('/sign', { kid, payload_b3: B3 })).status === 200);
  await eventually('nothing is degraded', async () => (await kms.send('GET', '/readyz')).json.degraded.length === 0);
  assert.ok(backend.probes > 0);
});

test('after verify_ttl verification of backend keys is refused; imported keys still verify', async () => {
  const backend = new FaultyBackend();
  await using kms = await startService({ backend, flags: ['--kms.keep_interval=10ms', '--kms.verify_ttl=50ms'] });
  const kid = await kms.create('ed25519', { purpose: 'raw' });
  const message_b64 = 'YWJj';
  const { sigs } = (await kms.post('/sign', { kid, message_b64 })).json;
  const { pubkey_b64 } = (await kms.get(`/keys/${encodeURIComponent(kid)}`)).json.public;
  const imported = (await kms.post('/keys/import', { tenant: 'acme', purpose: 'raw', alg: 'ed25519', pubkey_b64 })).json
    .kid;
  backend.isUnavailable = true;
  await eventually(
    'the keys are too old',
    async () => (await kms.post('/verify', { kid, message_b64, sigs })).status === 503,
  );
  const expired = await kms.post('/verify', { kid, message_b64, sigs });
  assertRefusal(expired, 503, 'verify_cache_expired');
  assert.ok(expired.json.cache_age_ms > 50);
  assert.ok((await kms.metric('verify_cache_expired_total')) > 0);
  const [{ alg, signature_b64 }] = sigs;
  assert.ok((await kms.post('/verify', { kid: imported, message_b64, sigs: [{ alg, signature_b64 }] })).json.ok);
  backend.isUnavailable = false;
  await eventually(
    'it verifies again',
    async () => (await kms.post('/verify', { kid, message_b64, sigs })).status === 200,
  );
});

test(
  'a token whose process is killed under load: 503 with Retry-After, and it recovers without a restart',
  {
    skip: missing(TEST_TOOLS.remote_hsm) ?? false,
  },
  async () => {
    await using hsm = await RemoteHsm.start();
    const { module, token, pin } = hsm;
    const flags = [
      '--kms.backend=pkcs11',
      `--pkcs11.module=${module}`,
      `--pkcs11.token=${token}`,
      '--kms.keep_interval=50ms',
    ];
    await using kms = await startService({ flags, env: { RON_KEK: KEK, RON_PIN: pin } });
    const kid = await kms.create('hmac-sha256');
    const derive = (): Promise<Reply> => kms.post('/derive', { kid, label: 'a/b' });
    const { secret_b64 } = (await derive()).json;
    const over = new AbortController();
    const seen = new Map<number, Reply>();
    const client = async (): Promise<void> => {
      while (!over.signal.aborted) {
        const reply = await derive();
        seen.set(reply.status, reply);
      }
    };
    const clients = Array.from({ length: 8 }, client);
    await eventually('the token works', () => seen.has(200));
    await hsm.kill();
    await eventually('it is an outage', () => seen.has(503));
    assertRefusal(seen.get(503)!, 503, 'not_ready');
    await hsm.revive();
    await eventually('it derives again', async () => (await derive()).status === 200);
    over.abort();
    await Promise.all(clients);
    assert.deepEqual(
      [...seen.keys()].filter((status) => status !== 200 && status !== 503),
      [],
      'nothing else is answered',
    );
    assert.equal((await derive()).json.secret_b64, secret_b64, 'the key is the same');
  },
);

test('every declared resource is used', async () => {
  const backend = new FaultyBackend();
  await using kms = await startService({ backend });
  const kid = await kms.create('hmac-sha256');
  await kms.post('/derive', { kid, label: 'a' });
  const wrapping = await kms.create('aes-256-gcm');
  const { wrapped_b64 } = (await kms.post('/datakey', { kid: wrapping })).json;
  await kms.post('/unwrap', { kid: wrapping, wrapped_b64 });
  await kms.post('/sign', { kid: await kms.create('ed25519'), payload_b3: B3, wait: 'checkpoint' });
  // [kms I-8] Every task is declared, started by the runtime, and owned by its supervisor.
  // The listener has its own; this backend has no attestation.
  assert.deepEqual(kms.kms.runtime.unbuilt(), ['deadline attest', 'deadline read', 'deadline write']);
});
