/** Start and stop, in this process and in a child: restarts, kill -9, drains under load, amnesia. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { missing, SoftHsm, TEST_TOOLS } from '@ron/custody/testing';
import { AMNESIA, B3, KEK, startService } from './support.ts';
import { assertRefusal, type Reply, ServiceProcess } from '@ron/testkit/service';
import { eventually, tempDir } from '@ron/testkit';
import { FaultyBackend } from './faulty-backend.ts';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));

interface Running {
  readonly process: ServiceProcess;
  post(path: string, body: unknown): Promise<Reply>;
}

async function run(t: TestContext, dir: string, flags: readonly string[] = []): Promise<Running> {
  const owner = `${dir}.owner`;
  const process = await ServiceProcess.start({
    main: MAIN,
    flags: [`--data_dir=${dir}`, `--auth.owner_file=${owner}`, ...flags],
    env: { RON_KEK: KEK },
  });
  t.after(() => process.kill());
  const token = (await readFile(owner, 'utf8')).trim();
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  return {
    process,
    post: (to, body) => process.send('POST', `/v1/kms${to}`, { headers, body: JSON.stringify(body) }),
  };
}

test('kill -9 under load loses no acknowledged operation; SIGTERM exits with 0 and a final checkpoint', async (t) => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const first = await run(t, dir, ['--audit.checkpoint_interval=1h']);
  const { kid } = (await first.post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' })).json;
  const signed: { log_index: number; sigs: unknown }[] = [];
  const client = async (): Promise<void> => {
    for (;;) {
      const { status, json } = await first.post('/sign', { kid, payload_b3: B3 });
      // A slow disk may refuse some.
      if (status === 200) signed.push(json);
    }
  };
  const clients = Array.from({ length: 8 }, () => client().catch(() => undefined));
  await eventually('enough was signed', () => signed.length > 100);
  await first.process.kill();
  await Promise.all(clients);

  const second = await run(t, dir);
  for (const { sigs } of signed.slice(0, 20)) {
    assert.ok((await second.post('/verify', { kid, payload_b3: B3, sigs })).json.ok);
  }
  const next = (await second.post('/sign', { kid, payload_b3: B3, wait: 'checkpoint' })).json;
  const answered = signed.filter(({ log_index }) => log_index !== undefined);
  assert.ok(
    answered.every(({ log_index }) => log_index < next.log_index),
    'places are never given twice',
  );
  assert.equal(await second.process.stop(), 0);

  await using third = await startService({ dir });
  assert.equal(third.kms.vault.log!.checkpoint!.size, third.kms.vault.log!.size);
});

test('a drain under load: requests in progress complete, others get 503, and the last checkpoint covers all', async () => {
  const backend = new FaultyBackend();
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  await using kms = await startService({ dir, backend });
  const kid = await kms.create('ed25519');
  const gate = Promise.withResolvers<void>();
  backend.gate = gate.promise;
  const inHand = Array.from({ length: 20 }, () => kms.post('/sign', { kid, payload_b3: B3 }));
  await eventually('all are in progress', () => kms.kms.ingress.admission.inflight === 20);
  const drained = kms.kms.drain();
  gate.resolve();
  const replies = await Promise.all(inHand);
  // [kms I-6]
  assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([200]));
  await drained;
  const indexes = replies.map(({ json }) => json.log_index as number);
  assert.equal(new Set(indexes).size, 20);
  await using again = await startService({ dir });
  const { log } = again.kms.vault;
  assert.equal(log!.checkpoint!.size, log!.size);
  assert.ok(log!.size > Math.max(...indexes));
});

test('amnesia: every route works, and nothing is written', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  await using kms = await startService({ dir, flags: AMNESIA });
  const kid = await kms.create('hybrid');
  const signed = await kms.post('/sign', { kid, payload_b3: B3, op_id: 'once', wait: 'checkpoint' });
  assert.equal(signed.status, 200, signed.text);
  assert.ok((await kms.post('/verify', { kid, payload_b3: B3, sigs: signed.json.sigs })).json.ok);
  assert.equal((await kms.send('GET', '/version')).json.rollback_protection, 'none');
  assert.equal((await kms.send('GET', '/readyz')).json.facts.rollback_protection, 'none');
  await kms.kms.drain();
  assert.equal(existsSync(dir), false);
});

test('a wrong key does not open the vault, and the error says so', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  await (await startService({ dir }))[Symbol.asyncDispose]();
  await assert.rejects(
    startService({ dir, env: { RON_KEK: '11'.repeat(32) } }),
    (error: Error) => !/11111/.test(error.message),
  );
  await using kms = await startService({ dir });
  assert.equal((await kms.get('/keys')).status, 200);
});

test(
  'keys on a PKCS#11 token: signed there, verified anywhere; the log keeps its own keys',
  { skip: missing(TEST_TOOLS.softhsm) ?? false },
  async () => {
    const { module, token, pin } = await SoftHsm.start();
    const flags = ['--kms.backend=pkcs11', `--pkcs11.module=${module}`, `--pkcs11.token=${token}`];
    await using kms = await startService({ flags, env: { RON_KEK: KEK, RON_PIN: pin } });
    const kid = await kms.create('ed25519');
    const signed = await kms.post('/sign', { kid, payload_b3: B3, wait: 'checkpoint' });
    assert.equal(signed.status, 200, signed.text);
    assert.ok((await kms.post('/verify', { kid, payload_b3: B3, sigs: signed.json.sigs })).json.ok);
    assert.match((await kms.get(`/keys/${encodeURIComponent(kid)}`)).json.attestation_class, /^token:/);
    assertRefusal(await kms.post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ml-dsa-65' }), 400, 'validation');
    assert.equal((await kms.send('GET', '/readyz')).status, 200);
  },
);
