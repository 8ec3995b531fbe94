/** The operator removes old entries: the rest stays provable, and everything else still works. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { checkEntryProof, dirSource, verifyLog, type Audit } from '@ron/tlog';
import { tempDir } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { B3, startService, type TestKms } from './support.ts';

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
