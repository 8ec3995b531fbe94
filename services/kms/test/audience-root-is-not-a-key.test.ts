/** The root of the audience keys is out of reach of every capability for ordinary keys. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AUDIENCE_ROOT } from '@ron/auth';
import { scopesOf } from '@ron/proto';
import { eventually, tempDirFor } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { B3, path, startService, type TestKms } from './support.ts';

async function entries(kms: TestKms): Promise<Record<string, unknown>[]> {
  const log = kms.kms.vault.log!;
  return await Promise.all(
    Array.from({ length: log.size }, async (_, at) => JSON.parse(Buffer.from(await log.entry(at)).toString())),
  );
}

test('no route for keys reaches the audience root, its tenant or its labels, with any scope', async () => {
  await using kms = await startService();
  const own = await kms.create('hmac-sha256');
  const derives = await kms.allow({ scopes: ['kms:derive'] });
  const steal = { kid: AUDIENCE_ROOT, label: 'audience/kms/v1' };
  assertRefusal(await kms.post('/derive', steal, derives), 403, 'forbidden');
  const root = path(AUDIENCE_ROOT);
  const version = path(`${AUDIENCE_ROOT}#v1`);
  const refused: [string, unknown?][] = [
    ['/derive', steal],
    ['/derive', { ...steal, kid: `${AUDIENCE_ROOT}#v1` }],
    ['/derive', { ...steal, label: 'x' }],
    ['/derive', { kid: own, label: 'audience/kms/v1' }],
    ['/keys', { tenant: 'ron', purpose: 'audience', alg: 'hmac-sha256' }],
    ['/keys/import', { tenant: 'ron', purpose: 'raw', alg: 'ed25519', pubkey_b64: 'YQ==' }],
    [`/keys/${root}/rotate`, {}],
    [`/keys/${root}/policy`, { min_version: 1 }],
    [`/keys/${version}/delete`],
    [`/keys/${version}/restore`],
    [`/keys/${root}/disable`],
    [`/keys/${root}/enable`],
    [`/keys/${root}/delete`],
    ['/sign', { kid: AUDIENCE_ROOT, payload_b3: B3 }],
    ['/verify', { kid: AUDIENCE_ROOT, payload_b3: B3, sigs: [{ alg: 'ed25519', signature_b64: 'YQ==' }] }],
    ['/wrap', { kid: AUDIENCE_ROOT, plaintext_key_b64: 'YQ==' }],
    ['/unwrap', { kid: AUDIENCE_ROOT, wrapped_b64: 'YQ==' }],
    ['/datakey', { kid: AUDIENCE_ROOT }],
  ];
  // The capability has every scope, also kms:audience.
  for (const [route, body] of refused) {
    const reply = await kms.post(route, body);
    assert.equal(reply.status, 403, `${route} ${JSON.stringify(body)}: ${reply.text}`);
    assert.match(reply.text, /reserved for the node/);
  }
  assertRefusal(await kms.get(`/keys/${root}`), 403, 'forbidden');
  assertRefusal(await kms.get('/keys?tenant=ron'), 403, 'forbidden');
  const listed = (await kms.get('/keys?limit=1000')).json.keys.map(({ kid }: { kid: string }) => kid);
  assert.deepEqual(listed, [own]);
  assert.equal((await kms.post('/derive', { kid: own, label: 'audiences' })).status, 200, 'other labels are free');
  const others = scopesOf('kms').filter((scope) => scope !== 'kms:audience');
  assertRefusal(
    await kms.post('/audience/derive', { audience: 'kms' }, await kms.allow({ scopes: others })),
    403,
    'forbidden',
  );
});

test('the root is rotated once per version and retired for good; its keys depend on version and audience only', async (t) => {
  const dir = tempDirFor(t);
  const derive = async (kms: TestKms, audience: string, version?: number) =>
    await kms.post('/audience/derive', { audience, version });
  let first: string;
  {
    await using kms = await startService({ dir });
    const state = (await kms.get('/audience', {})).json;
    assert.deepEqual([state.version, state.min_version], [1, 1]);
    first = (await derive(kms, 'storage')).json.secret_b64;
    assert.equal((await derive(kms, 'storage', 1)).json.secret_b64, first);
    assert.notEqual((await derive(kms, 'index')).json.secret_b64, first);
    assertRefusal(await derive(kms, 'storage', 2), 404, 'not_found');
    const rotations = await Promise.all([1, 1, 1].map((version) => kms.post('/audience/rotate', { version })));
    for (const { status, json } of rotations) assert.deepEqual([status, json.version], [200, 2]);
    assertRefusal(await kms.post('/audience/rotate', { version: 7 }), 409, 'conflict');
    assert.notEqual((await derive(kms, 'storage')).json.secret_b64, first);
    assert.equal((await derive(kms, 'storage', 1)).json.secret_b64, first);
  }
  await using kms = await startService({ dir });
  assert.equal((await derive(kms, 'storage', 1)).json.secret_b64, first, 'across a restart');
  assert.equal((await kms.post('/audience/retire', { min_version: 2 })).status, 200);
  const all = await kms.allow();
  assertRefusal(await kms.post('/audience/derive', { audience: 'storage', version: 1 }, all), 409, 'conflict');
  assertRefusal(await kms.post('/audience/retire', { min_version: 1 }, all), 409, 'conflict');
  assertRefusal(await kms.post('/audience/retire', { min_version: 3 }, all), 409, 'conflict');
  assert.deepEqual((await kms.get('/audience', {})).json.min_version, 2);
});

test('creation, derivations, rotation and retirement have entries; the poll of versions has none', async () => {
  await using kms = await startService();
  const storage = await kms.allow({
    scopes: ['kms:audience'],
    caveats: ['label ^= audience/storage/'],
    subject: 'svc-storage',
  });
  assert.equal((await kms.post('/audience/derive', { audience: 'storage' }, storage)).status, 200);
  assertRefusal(await kms.post('/audience/derive', { audience: 'kms' }, storage), 403, 'forbidden');
  for (let polls = 0; polls < 20; polls++) await kms.get('/audience', {});
  await kms.post('/audience/rotate', { version: 1 });
  await kms.post('/audience/retire', { min_version: 2 });
  await eventually('all are in the log', async () => (await entries(kms)).some(({ op }) => op === 'retire'));
  const found = (await entries(kms)).filter(({ tenant }) => tenant === 'ron');
  const names = found.map(({ op, result, kid, subject }) => [op, result, String(kid).slice(-3), subject].join(' '));
  const expected = [
    'create ok #v1 svc-kms',
    'derive ok #v1 svc-storage',
    'derive forbidden #v1 svc-storage',
    'rotate ok #v2 -',
    'retire ok #v2 -',
  ];
  assert.deepEqual(
    names.filter((name) => !/^derive ok #v\d svc-kms$/.test(name)),
    expected,
  );
  assert.ok(names.includes('derive ok #v1 svc-kms'), 'kms derives its own keys');
  assert.ok(names.length < 20, 'polls have no entries');
});

test('services of the node append entries, once per op_id, under their own name; other subjects do not', async () => {
  await using kms = await startService();
  const id = 'c'.repeat(22);
  const by = { capability_id: 'b'.repeat(22), subject: 'root', chain: ['a'.repeat(22)] };
  const entry = {
    op: 'issue',
    op_id: id,
    time_ms: 5,
    by,
    capability_id: id,
    subject: 'alice',
    audience: 'storage',
    scopes: ['storage:get'],
    expires_ms: 9,
  };
  const passport = await kms.allow({ scopes: ['kms:log'], subject: 'svc-passport' });
  const [first, again] = [
    await kms.post('/audit/entries', entry, passport),
    await kms.post('/audit/entries', entry, passport),
  ];
  assert.equal(first.status, 200, first.text);
  assert.deepEqual(again.json, first.json, 'one entry');
  assertRefusal(await kms.post('/audit/entries', { ...entry, subject: 'bob' }, passport), 409, 'conflict');
  const revoke = { op: 'revoke', op_id: 'r1', time_ms: 6, by, epoch: 7 };
  assert.equal((await kms.post('/audit/entries', revoke, passport)).status, 200);
  for (const bad of [
    { ...entry, op: 'sign' },
    { ...entry, service: 'kms' },
    { ...entry, token: 'x' },
    { ...entry, subject: '"' },
    { ...revoke, by: { ...by, chain: Array(5).fill(id) } },
  ])
    assert.equal((await kms.post('/audit/entries', bad, passport)).status, 400, JSON.stringify(bad));
  assertRefusal(await kms.post('/audit/entries', { ...entry, op_id: 'x' }), 403, 'forbidden');
  assertRefusal(
    await kms.post('/audit/entries', entry, await kms.allow({ scopes: ['kms:sign'], subject: 'svc-passport' })),
    403,
    'forbidden',
  );
  const own = (await entries(kms)).filter(({ service }) => service !== undefined);
  assert.deepEqual(own, [
    {
      actor: by.capability_id,
      audience: 'storage',
      chain: by.chain,
      expires_ms: 9,
      op: 'issue',
      op_id: id,
      result: 'ok',
      scopes: ['storage:get'],
      service: 'passport',
      subject: 'root',
      target_id: id,
      target_subject: 'alice',
      time_ms: 5,
    },
    {
      actor: by.capability_id,
      chain: by.chain,
      epoch: 7,
      op: 'revoke',
      op_id: 'r1',
      result: 'ok',
      service: 'passport',
      subject: 'root',
      target_subject: 'all',
      time_ms: 6,
    },
  ]);
});
