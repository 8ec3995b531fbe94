/** The audit log: what is in it, how it is proven, and what happens when it cannot be written or is not what it was. */
import assert from 'node:assert/strict';
import { cp, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { decodeCheckpoint, dirSource, leafHash, parseNote, urlSource, verifyInclusion, verifyLog } from '@ron/tlog';
import { startWitness } from '@ron/tlog/testing';
import { FaultyDisk } from './faulty-disk.ts';
import { assertRefusal, B3, eventually, NEVER, path, startService, tempDir, type TestKms } from './support.ts';

interface Proof {
  log_index: number;
  tree_size: number;
  leaf_hash_b64: string;
  path_b64: string[];
  entry_b64: string;
  checkpoint: string;
}

const bytes = (text: string): Buffer => Buffer.from(text, 'base64');

function assertProven(proof: Proof): Record<string, unknown> {
  const { size, root } = decodeCheckpoint(parseNote(proof.checkpoint).text);
  assert.equal(size, proof.tree_size);
  const leaf = leafHash(bytes(proof.entry_b64));
  assert.deepEqual(leaf, bytes(proof.leaf_hash_b64));
  const way = proof.path_b64.map(bytes);
  assert.ok(verifyInclusion({ leaf, index: proof.log_index, size, path: way, root }));
  return JSON.parse(bytes(proof.entry_b64).toString()) as Record<string, unknown>;
}

/** Every entry, in order. */
async function entries(kms: TestKms): Promise<Record<string, unknown>[]> {
  const log = kms.kms.vault.log!;
  return await Promise.all(
    Array.from({ length: log.size }, async (_, at) => JSON.parse(Buffer.from(await log.entry(at)).toString())),
  );
}

const sign = (kms: TestKms, kid: string, more: object = {}) => kms.post('/sign', { kid, payload_b3: B3, ...more });

test('every operation is an entry with who, what and how it ended, and no secret', async () => {
  await using kms = await startService();
  const kid = await kms.create('ed25519');
  const signed = (await sign(kms, kid, { op_id: 'op-7' })).body;
  await kms.post('/verify', { kid, payload_b3: B3.replace('a', 'b'), sigs: signed.sigs });
  await kms.post(`/keys/${path(kid)}/rotate`, {});
  assertRefusal(await sign(kms, kid), 409, 'conflict');
  const wrapping = await kms.create('x-wing');
  await kms.post('/datakey', { kid: wrapping });
  await kms.post('/derive', { kid: await kms.create('hmac-sha256'), label: 'audience/storage/1' });
  await eventually('all are in the log', () => kms.kms.vault.log!.size === 9);
  const told = await entries(kms);
  assert.deepEqual(
    told.map(({ op, result }) => `${String(op)} ${String(result)}`),
    [
      'create ok',
      'sign ok',
      'verify not_verified',
      'rotate ok',
      'sign conflict',
      'create ok',
      'datakey ok',
      'create ok',
      'derive ok',
    ],
  );
  const entry = told[1]!;
  assert.deepEqual(Object.keys(entry), [
    'actor',
    'alg',
    'input_hash',
    'kid',
    'op',
    'op_id',
    'purpose',
    'result',
    'tenant',
    'time_ms',
  ]);
  assert.deepEqual(
    [entry['kid'], entry['input_hash'], entry['op_id'], entry['tenant']],
    [kid, `b3:${B3}`, 'op-7', 'acme'],
  );
  assert.match(String(entry['actor']), /^[\w.:-]+$/);
  assert.equal(signed.log_index, 1);
});

test('a signature with its proof; proofs later; tiles over HTTP; the whole log checked from outside', async () => {
  await using kms = await startService();
  const kid = await kms.create('ed25519');
  const signed = await sign(kms, kid, { wait: 'checkpoint' });
  assert.equal(signed.status, 200, signed.text);
  const entry = assertProven(signed.body.proof);
  assert.deepEqual([entry['op'], entry['kid']], ['sign', kid]);
  await Promise.all(Array.from({ length: 600 }, () => sign(kms, kid)));
  await eventually('a checkpoint covers them', async () => (await kms.get('/audit/proof/600')).status === 200);
  assertProven((await kms.get('/audit/proof/300')).body);
  assertRefusal(await kms.get('/audit/proof/100000'), 404, 'not_found');
  const { vkeys, origin } = (await kms.get('/audit/keys')).body;
  assert.equal(vkeys.length, 2);
  const headers = await kms.allow({ scopes: ['kms:read'] });
  await using source = urlSource(`${kms.url}/v1/kms/audit`, { headers });
  const audit = await verifyLog(source, vkeys, { signal: NEVER, origin });
  assert.ok(audit.ok, JSON.stringify(audit));
  assert.ok(audit.checkpoint.size >= 601);
  const tile = await kms.get('/audit/tile/0/000');
  assert.match(tile.headers['cache-control'] ?? '', /immutable/);
  for (const bad of [
    '/audit/tile/0/../../index',
    '/audit/tile/0/%2e%2e/x',
    '/audit/tile/9/000',
    '/audit/tile/0/0',
    '/audit/tile/entries/999',
  ]) {
    assert.ok([400, 404].includes((await kms.get(bad)).status), bad);
  }
  const consistency = (await kms.get(`/audit/consistency/1/${audit.checkpoint.size}`)).body;
  assert.ok(Array.isArray(consistency.path_b64));
});

test('the log is open to all only when that is configured', async () => {
  await using kms = await startService({ flags: ['--audit.public=true'] });
  await sign(kms, await kms.create('ed25519'), { wait: 'checkpoint' });
  assert.equal((await kms.get('/audit/checkpoint', {})).status, 200);
  assertRefusal(await kms.get('/keys', {}), 401, 'unauthorized');
  await using closed = await startService();
  assertRefusal(await closed.get('/audit/checkpoint', {}), 401, 'unauthorized');
});

test('continue: a log that cannot be written does not stop signing; later a gap says what is missing', async () => {
  const disk = new FaultyDisk();
  await using kms = await startService({ fs: disk, flags: ['--audit.mode=continue'] });
  const kid = await kms.create('ed25519');
  disk.fail('audit/entries', 'ENOSPC');
  const signed = await sign(kms, kid);
  assert.deepEqual([signed.status, signed.body.log_index], [200, undefined], signed.text);
  assert.ok((await kms.metric('audit_dropped_total')) >= 1);
  const ready = await kms.send('GET', '/readyz');
  assert.equal(ready.status, 503);
  assert.match(ready.text, /audit/);
  disk.mend();
  const next = await sign(kms, kid);
  assert.ok(next.body.log_index > 0, next.text);
  const gap = (await entries(kms)).find(({ op }) => op === 'gap')!;
  assert.deepEqual([gap['count'], typeof gap['from'], typeof gap['to']], [1, 'number', 'number']);
  await eventually('it is ready again', async () => (await kms.send('GET', '/readyz')).status === 200);
});

test('strict: nothing is done without an entry', async () => {
  const disk = new FaultyDisk();
  await using kms = await startService({ fs: disk, flags: ['--audit.mode=strict'] });
  const kid = await kms.create('ed25519');
  disk.fail('audit/entries', 'ENOSPC');
  assertRefusal(await sign(kms, kid), 503, 'degraded_audit');
  disk.mend();
  await eventually('it signs again', async () => (await sign(kms, kid)).status === 200);
});

test('a checkpoint that is late makes the service not ready, and is counted', async () => {
  const disk = new FaultyDisk();
  const flags = ['--audit.checkpoint_deadline=50ms', '--audit.checkpoint_interval=20ms'];
  await using kms = await startService({ fs: disk, flags });
  const kid = await kms.create('ed25519');
  disk.hold('audit/checkpoint');
  await sign(kms, kid);
  await eventually('it is not ready', async () => (await kms.send('GET', '/readyz')).status === 503);
  await eventually('it says how late it is', async () =>
    /checkpoint \d+ s late/.test((await kms.send('GET', '/readyz')).text),
  );
  assert.ok((await kms.metric('kms_audit_integrity_failed_total')) > 0);
  assert.ok((await kms.metric('io_timeouts_total{op="checkpoint"}')) > 0);
  disk.mend();
  await eventually('it is ready again', async () => (await kms.send('GET', '/readyz')).status === 200);
});

/** A service that signed a little and stopped in good order; gives its directory, and a signature to check. */
async function used(dir: string): Promise<{ kid: string; sigs: unknown }> {
  await using kms = await startService({ dir });
  const kid = await kms.create('ed25519');
  const { sigs } = (await sign(kms, kid)).body;
  for (let at = 0; at < 20; at++) await sign(kms, kid);
  await sign(kms, kid, { wait: 'checkpoint' });
  await kms.kms.drain();
  return { kid, sigs };
}

/** It runs, verifies, says why it is not ready, and signs nothing. */
async function assertRefusesToSign(
  dir: string,
  { kid, sigs }: { kid: string; sigs: unknown },
  why: RegExp,
): Promise<void> {
  await using kms = await startService({ dir });
  const refused = await sign(kms, kid);
  assertRefusal(refused, 503, 'audit_integrity');
  assert.match(refused.body.detail, why);
  const ready = await kms.send('GET', '/readyz');
  assert.equal(ready.status, 503);
  assert.match(ready.body.detail, why);
  assert.ok((await kms.post('/verify', { kid, payload_b3: B3, sigs })).body.ok, 'verifying goes on');
  assert.ok((await kms.metric('kms_audit_integrity_failed_total')) > 0);
}

const changes: readonly { what: string; why: RegExp; plant: (dir: string, copy: string) => Promise<void> }[] = [
  {
    what: 'the log was cut',
    why: /./,
    plant: async (dir) => truncate(join(dir, 'audit/entries'), 1000),
  },
  {
    what: 'an older log was put back',
    why: /./,
    plant: async (dir, copy) => replace(dir, copy, 'audit'),
  },
  {
    what: 'an older list of keys was put back',
    why: /index/,
    plant: async (dir, copy) => replace(dir, copy, 'index'),
  },
  {
    what: 'an older file of private keys was put back',
    why: /custody/,
    plant: async (dir, copy) => replace(dir, copy, 'custody'),
  },
];

async function replace(dir: string, copy: string, name: string): Promise<void> {
  await rm(join(dir, name), { recursive: true });
  await cp(join(copy, name), join(dir, name), { recursive: true });
}

for (const { what, why, plant } of changes) {
  test(`${what}: nothing is signed`, async () => {
    await using temp = await tempDir();
    const [dir, copy] = [join(temp.path, 'data'), join(temp.path, 'copy')];
    const before = await used(dir);
    await cp(dir, copy, { recursive: true });
    {
      await using kms = await startService({ dir });
      for (let at = 0; at < 10; at++) await sign(kms, await kms.create('ed25519'));
      await kms.kms.drain();
    }
    await plant(dir, copy);
    await assertRefusesToSign(dir, before, why);
  });
}

test('one flipped byte anywhere in the log is found by the full audit', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  await used(dir);
  const vkeys = (await readFile(join(dir, 'audit/vkeys'), 'utf8')).trim().split('\n');
  const check = async () => {
    await using source = await dirSource(join(dir, 'audit'));
    return await verifyLog(source, vkeys, { signal: NEVER });
  };
  assert.ok((await check()).ok);
  const file = join(dir, 'audit/entries');
  const whole = await readFile(file);
  for (const at of [3, 100, Math.floor(whole.length / 2), whole.length - 1]) {
    const broken = Buffer.from(whole);
    broken[at]! ^= 1;
    await writeFile(file, broken);
    assert.equal((await check()).ok, false, `byte ${at}`);
  }
  await writeFile(file, whole);
  assert.ok((await check()).ok);
});

test('a crash between append and checkpoint does no harm: the tail is accepted and signed', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const copy = join(temp.path, 'copy');
  const { kid } = await used(dir);
  {
    await using kms = await startService({ dir, flags: ['--audit.checkpoint_interval=1h'] });
    for (let at = 0; at < 5; at++) assert.equal((await sign(kms, kid)).status, 200);
    // As a power cut would leave it: entries are synced, the checkpoint is old.
    await cp(dir, copy, { recursive: true });
  }
  await using again = await startService({ dir: copy });
  assert.equal((await sign(again, kid, { wait: 'checkpoint' })).status, 200);
  assert.equal((await again.send('GET', '/readyz')).status, 200);
});

test('everything put back together: only a witness notices, and then nothing is signed', async () => {
  await using temp = await tempDir();
  const [dir, copy] = [join(temp.path, 'data'), join(temp.path, 'copy')];
  const { kid } = await used(dir);
  await cp(dir, copy, { recursive: true });
  const vkeys = (await readFile(join(dir, 'audit/vkeys'), 'utf8')).trim().split('\n');
  const origin = vkeys[0]!.split('+')[0]!;
  await using witness = await startWitness(origin, vkeys);
  const flags = [`--audit.witness_url=${witness.url}`, `--audit.witness_key=${witness.vkey}`];
  {
    await using kms = await startService({ dir, flags });
    assert.equal((await kms.send('GET', '/version')).body.rollback_protection, 'witness');
    for (let at = 0; at < 5; at++) await sign(kms, kid);
    assert.equal((await sign(kms, kid, { wait: 'checkpoint' })).status, 200);
    await kms.kms.drain();
  }
  await rm(dir, { recursive: true });
  await cp(copy, dir, { recursive: true });
  {
    await using kms = await startService({ dir });
    assert.equal((await kms.send('GET', '/version')).body.rollback_protection, 'keystore');
    assert.equal((await sign(kms, kid)).status, 200, 'nobody can know');
  }
  await rm(dir, { recursive: true });
  await cp(copy, dir, { recursive: true });
  await using kms = await startService({ dir, flags });
  await eventually('the witness is asked', async () => (await sign(kms, kid)).status === 503);
  assertRefusal(await sign(kms, kid), 503, 'audit_integrity');
  assert.equal((await kms.send('GET', '/readyz')).status, 503);
});
