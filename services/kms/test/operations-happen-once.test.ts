/** An op_id makes an operation idempotent: concurrently, later, and across restarts. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { tempDir } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { FaultyDisk } from '@ron/log/testing';
import { FaultyStore } from './faulty-store.ts';
import { B3, path, startService, type TestKms } from './support.ts';

const make = (kms: TestKms, op_id: string, alg = 'ed25519') =>
  kms.post('/keys', { tenant: 'acme', purpose: 'docs', alg, op_id });

test('the same id and request get the same answer; another request is refused; ids are separate per tenant', async () => {
  await using kms = await startService();
  const first = await make(kms, 'make-1');
  assert.equal((await make(kms, 'make-1')).json.kid, first.json.kid);
  assertRefusal(await make(kms, 'make-1', 'hybrid'), 409, 'conflict');
  const elsewhere = await kms.post('/keys', { tenant: 'zoo', purpose: 'docs', alg: 'ed25519', op_id: 'make-1' });
  assert.notEqual(elsewhere.json.kid, first.json.kid);
  const { kid } = first.json;
  const rotated = await kms.post(`/keys/${path(kid)}/rotate`, { op_id: 'rotate-1' });
  const again = await kms.post(`/keys/${path(kid)}/rotate`, { op_id: 'rotate-1' });
  assert.deepEqual(again.json, rotated.json);
  assert.deepEqual((await kms.get(`/keys/${path(kid)}`)).json.versions, ['#v1', '#v2']);
  const ask = { kid: rotated.json.kid, payload_b3: B3, op_id: 'sign-1' };
  const signed = await kms.post('/sign', ask);
  assert.deepEqual((await kms.post('/sign', ask)).json, signed.json);
  assertRefusal(await kms.post('/sign', { ...ask, payload_b3: B3.replace('a', 'b') }), 409, 'conflict');
  const batch = await kms.post('/sign', { items: [{ ...ask }, { kid: rotated.json.kid, payload_b3: B3 }] });
  assert.deepEqual(batch.json.items[0], signed.json);
  assert.notEqual(batch.json.items[1].log_index, signed.json.log_index);
});

test('concurrent requests with one id run once', async () => {
  await using kms = await startService();
  const replies = await Promise.all(Array.from({ length: 20 }, () => make(kms, 'at-once')));
  assert.equal(new Set(replies.map(({ json }) => json.kid)).size, 1);
  assert.equal((await kms.get('/keys?tenant=acme')).json.keys.length, 1);
});

test('a failed operation may be retried with its id', async () => {
  await using kms = await startService();
  const { kid } = (await make(kms, 'a')).json;
  const v2 = kid.replace('#v1', '#v2');
  assertRefusal(await kms.post('/sign', { kid: v2, payload_b3: B3, op_id: 'later' }), 404, 'not_found');
  await kms.post(`/keys/${path(kid)}/rotate`, {});
  assert.equal((await kms.post('/sign', { kid: v2, payload_b3: B3, op_id: 'later' })).status, 200);
});

test('an id survives a restart, even if the process died before it responded', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  let kid: string;
  let signed: unknown;
  {
    await using kms = await startService({ dir });
    kid = (await make(kms, 'first')).json.kid;
    signed = (await kms.post('/sign', { kid, payload_b3: B3, op_id: 'sign' })).json;
  }
  {
    await using kms = await startService({ dir });
    assert.equal((await make(kms, 'first')).json.kid, kid);
    assert.deepEqual((await kms.post('/sign', { kid, payload_b3: B3, op_id: 'sign' })).json, signed);
    assertRefusal(await make(kms, 'first', 'hybrid'), 409, 'conflict');
  }
  // The key is stored before the answer: a process that dies in between leaves the key without the answer.
  {
    const store = await FaultyStore.open(dir);
    await using kms = await startService({ dir, store });
    store.fail('ops', 'EIO');
    assertRefusal(await make(kms, 'second'), 503, 'not_ready');
  }
  await using kms = await startService({ dir });
  const { keys } = (await kms.get('/keys?tenant=acme')).json;
  assert.equal(keys.length, 2);
  const again = (await make(kms, 'second')).json.kid;
  assert.ok(again !== kid && keys.some((each: { kid: string }) => each.kid === again));
  assertRefusal(await make(kms, 'second', 'hybrid'), 409, 'conflict');
  assert.equal((await kms.get('/keys?tenant=acme')).json.keys.length, 2);
});

test('a retry of an operation whose entry was not written records it before it is answered', async () => {
  const fs = new FaultyDisk();
  await using kms = await startService({ fs });
  const log = kms.kms.vault.log!;
  const key = (await make(kms, 'first')).json.kid as string;
  const rotate = () => kms.post(`/keys/${path(key)}/rotate`, { op_id: 'rotate' });
  for (const [op, run] of [
    ['create', () => make(kms, 'create')],
    ['rotate', rotate],
  ] as const) {
    fs.fail('audit/entries', 'EIO');
    assertRefusal(await run(), 503, 'degraded_audit');
    assertRefusal(await run(), 503, 'degraded_audit');
    fs.mend();
    const from = log.size;
    const { status, json } = await run();
    assert.ok(status < 300);
    const entries = [];
    for (let at = from; at < log.size; at++)
      entries.push(JSON.parse(Buffer.from(await log.entry(at)).toString()) as Record<string, unknown>);
    const found = entries.find((each) => each['op'] === op && each['result'] === 'ok');
    assert.deepEqual([found?.['kid'], found?.['op_id']], [json.kid, op], JSON.stringify(entries));
    assert.equal((await run()).json.kid, json.kid);
  }
  assert.equal((await kms.get('/keys?tenant=acme')).json.keys.length, 2);
  assert.deepEqual((await kms.get(`/keys/${path(key)}`)).json.versions, ['#v1', '#v2']);
});

test('ids are bounded, and one tenant cannot take them all', async () => {
  await using kms = await startService({ flags: ['--kms.ops_max=4'] });
  assert.equal((await make(kms, 'one')).status, 201);
  assert.equal((await make(kms, 'two')).status, 201);
  assertRefusal(await make(kms, 'three'), 507, 'storage_full');
  const other = await kms.post('/keys', { tenant: 'zoo', purpose: 'docs', alg: 'ed25519', op_id: 'one' });
  assert.equal(other.status, 201, other.text);
  assert.equal(await kms.metric('kms_op_ids'), 3);
});
