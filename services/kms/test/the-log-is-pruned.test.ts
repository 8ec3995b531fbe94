/** The operator removes old entries: the rest stays provable, and everything else still works. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { NEVER } from '@ron/kernel';
import { checkEntryProof, dirSource, verifyLog, type Audit } from '@ron/tlog';
import { startWitness } from '@ron/tlog/testing';
import { eventually, tempDir } from '@ron/testkit';
import { assertRefusal, ServiceProcess } from '@ron/testkit/service';
import { B3, KEK, startService, type TestKms } from './support.ts';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));

async function signMany(kms: TestKms, kid: string, count: number): Promise<number> {
  const items = Array.from({ length: 128 }, () => ({ kid, payload_b3: B3 }));
  for (let done = 0; done < count; done += items.length) {
    const reply = await kms.post('/sign', { items });
    assert.equal(reply.status, 200, reply.text);
  }
  const reply = await kms.post('/sign', { kid, payload_b3: B3, wait: 'checkpoint' });
  return reply.json.log_index as number;
}

async function audit(dir: string, vkeys: readonly string[]): Promise<Audit> {
  await using source = await dirSource(join(dir, 'audit'));
  return await verifyLog(source, vkeys, { signal: NEVER });
}

test('a pruned log proves its rest, verifies, and is opened again', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  let [kid, last] = ['', 0];
  {
    await using kms = await startService({ dir });
    kid = await kms.create('ed25519');
    last = await signMany(kms, kid, 700);
    assertRefusal(await kms.get('/audit/pruned'), 404, 'not_found');
    const reply = await kms.post('/audit/prune', { before: 600 });
    assert.equal(reply.status, 200, reply.text);
    assert.equal(reply.json.before, 512);
    assert.ok(reply.json.freed_bytes > 512 * 100, reply.text);
    const { entry, before } = (await kms.get('/audit/pruned')).json;
    assert.equal(before, 512);
    const announced = (await kms.get(`/audit/proof/${entry}`)).json;
    const { op, subject, actor } = JSON.parse(Buffer.from(announced.entry_b64, 'base64').toString());
    assert.deepEqual([op, typeof subject, typeof actor], ['prune', 'string', 'string']);
    for (const index of [512, last]) {
      const proof = await kms.get(`/audit/proof/${index}`);
      assert.equal(checkEntryProof(proof.text, kms.kms.vault.vkeys).index, index);
    }
    assertRefusal(await kms.get('/audit/proof/511'), 404, 'not_found');
    for (const path of ['entries/001', '0/001']) assertRefusal(await kms.get(`/audit/tile/${path}`), 404, 'not_found');
    assert.equal((await kms.get('/audit/tile/entries/002')).status, 200);
    assert.equal((await kms.get(`/audit/consistency/600/${last}`)).status, 200);
    assert.equal(await kms.metric('kms_audit_first_entry'), 512);
    const again = await kms.post('/audit/prune', { before: 512 });
    assert.deepEqual([again.status, again.json.freed_bytes], [200, 0], 'idempotent');
  }
  await using kms = await startService({ dir });
  assert.equal((await kms.send('GET', '/readyz')).status, 200);
  last = await signMany(kms, kid, 256);
  assert.equal((await kms.get(`/audit/proof/${last}`)).status, 200);
  assert.equal((await kms.post('/audit/prune', { before: 768 })).json.before, 768);
  const { vkeys } = kms.kms.vault;
  await kms.kms.drain();
  const result = await audit(dir, vkeys);
  assert.ok(result.ok, JSON.stringify(result));
  assert.equal(result.first, 768);
});

test('only the operator prunes, and only behind a checkpoint', async () => {
  await using kms = await startService();
  const last = await signMany(kms, await kms.create('ed25519'), 256);
  for (const init of [
    { scopes: ['kms:read', 'kms:delete', 'kms:rotate'] as const },
    { scopes: ['kms:audit'] as const, caveats: ['tenant = acme'] },
  ])
    assertRefusal(await kms.post('/audit/prune', { before: 256 }, await kms.allow(init)), 403, 'forbidden');
  assertRefusal(await kms.post('/audit/prune', { before: last + 512 }), 409, 'conflict');
  assertRefusal(await kms.post('/audit/prune', { before: -1 }), 400, 'validation');
  assert.equal(kms.kms.vault.log!.first, 0);
});

test('kill -9 at any moment of a pruning: kms starts, signs, and the log verifies', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  let [kid, first] = ['', 0];
  {
    await using kms = await startService({ dir });
    kid = await kms.create('ed25519');
    await signMany(kms, kid, 1500);
  }
  const flags = [`--data_dir=${dir}`, `--auth.owner_file=${dir}.owner`, '--audit.checkpoint_interval=20ms'];
  for (const [round, wait_ms] of [0, 15, 30, 45, undefined].entries()) {
    await using process = await ServiceProcess.start({ main: MAIN, flags, env: { RON_KEK: KEK } });
    const token = (await readFile(`${dir}.owner`, 'utf8')).trim();
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const post = (to: string, body: unknown) =>
      process.send('POST', `/v1/kms${to}`, { headers, body: JSON.stringify(body) });
    const signed = await post('/sign', { kid, payload_b3: B3 });
    assert.equal(signed.status, 200, signed.text);
    const pruning = post('/audit/prune', { before: 256 * (round + 1) }).catch(() => undefined);
    if (wait_ms === undefined) await pruning;
    else await sleep(wait_ms);
    await process.kill();
    const reply = await pruning;
    if (reply?.status === 200) first = reply.json.before as number;
  }
  await using kms = await startService({ dir });
  assert.ok(kms.kms.vault.log!.first >= first, 'an acknowledged pruning is not undone');
  assert.equal(first, 256 * 5, 'the last one was not killed');
  const last = await signMany(kms, kid, 1);
  assert.equal((await kms.get(`/audit/proof/${last}`)).status, 200);
  const { vkeys } = kms.kms.vault;
  await kms.kms.drain();
  const result = await audit(dir, vkeys);
  assert.ok(result.ok, JSON.stringify(result));
});

test('with a witness, only entries that it cosigned are removed', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  let [kid, vkeys]: [string, readonly string[]] = ['', []];
  {
    await using kms = await startService({ dir });
    kid = await kms.create('ed25519');
    await signMany(kms, kid, 600);
    vkeys = kms.kms.vault.vkeys;
  }
  await using witness = await startWitness(vkeys[0]!.split('+')[0]!, vkeys);
  witness.override = { status: 500, text: '' };
  const flags = [
    `--audit.witness_url=${witness.url}`,
    `--audit.witness_key=${witness.vkey}`,
    '--egress.networks=127.0.0.0/8',
  ];
  {
    await using kms = await startService({ dir, flags });
    const refused = await kms.post('/audit/prune', { before: 512 });
    assertRefusal(refused, 409, 'conflict');
    assert.match(refused.json.detail, /the witness has cosigned 0/);
  }
  witness.override = undefined;
  await using kms = await startService({ dir, flags });
  assert.equal((await kms.post('/audit/prune', { before: 512 })).json.before, 512);
  // The witness is shown that later checkpoints extend the one that it knows, without the removed entries.
  const size = await signMany(kms, kid, 300);
  const isCosigned = (): boolean => kms.kms.vault.log!.checkpoint!.size > size && cosignatures() > 0;
  const cosignatures = (): number =>
    kms.kms.vault.log!.checkpoint!.text.split('\n').filter((line) => line.startsWith('\u2014')).length - vkeys.length;
  await eventually('the next checkpoint is cosigned', isCosigned);
});
