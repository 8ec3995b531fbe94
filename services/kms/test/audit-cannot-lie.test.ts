/** The audit log: its entries, its proofs, and the behaviour when it cannot be written. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { AUDIENCE_TENANT } from '@ron/auth';
import { NEVER } from '@ron/kernel';
import { decodeCheckpoint, leafHash, parseNote, urlSource, verifyInclusion, verifyLog } from '@ron/tlog';
import { eventually, tempDir } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { FaultyDisk } from '@ron/log/testing';
import { FaultyStore } from './faulty-store.ts';
import { FaultyBackend } from './faulty-backend.ts';
import { B3, path, startService, type TestKms } from './support.ts';

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

/** Every entry about the keys of users, in order. Kms records the root of the audience keys too. */
async function entries(kms: TestKms): Promise<Record<string, unknown>[]> {
  const log = kms.kms.vault.log!;
  const all: Record<string, unknown>[] = await Promise.all(
    Array.from({ length: log.size }, async (_, at) => JSON.parse(Buffer.from(await log.entry(at)).toString())),
  );
  return all.filter(({ tenant }) => tenant !== AUDIENCE_TENANT);
}

const sign = (kms: TestKms, kid: string, more: object = {}) => kms.post('/sign', { kid, payload_b3: B3, ...more });

test('every operation has an entry with actor, operation and result, and no secret', async () => {
  await using kms = await startService();
  const kid = await kms.create('ed25519');
  const signed = (await sign(kms, kid, { op_id: 'op-7' })).json;
  await kms.post('/verify', { kid, payload_b3: B3.replace('a', 'b'), sigs: signed.sigs });
  await kms.post(`/keys/${path(kid)}/rotate`, {});
  assertRefusal(await sign(kms, kid), 409, 'conflict');
  const wrapping = await kms.create('x-wing');
  await kms.post('/datakey', { kid: wrapping });
  await kms.post('/derive', { kid: await kms.create('hmac-sha256'), label: 'mine/1' });
  await eventually('all are in the log', async () => (await entries(kms)).length === 9);
  const recorded = await entries(kms);
  assert.deepEqual(
    recorded.map(({ op, result }) => `${String(op)} ${String(result)}`),
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
  const entry = recorded[1]!;
  assert.deepEqual(Object.keys(entry), [
    'actor',
    'alg',
    'chain',
    'input_hash',
    'kid',
    'op',
    'op_id',
    'purpose',
    'result',
    'subject',
    'tenant',
    'time_ms',
  ]);
  assert.deepEqual(
    [entry['kid'], entry['input_hash'], entry['op_id'], entry['tenant']],
    [kid, `b3:${B3}`, 'op-7', 'acme'],
  );
  assert.match(String(entry['actor']), /^[\w.:-]+$/);
  const log = kms.kms.vault.log!;
  assert.deepEqual(JSON.parse(Buffer.from(await log.entry(signed.log_index)).toString()), entry);
});

test('every refused or failed operation has an entry, for every cause', async () => {
  const backend = new FaultyBackend();
  await using kms = await startService({ backend, flags: ['--kms.keys_max=5', '--audit.verify_rate=1000'] });
  const kid = await kms.create('ed25519');
  const { sigs } = (await sign(kms, kid, { op_id: 'used' })).json;
  const wrapping = await kms.create('x-wing');
  const gone = kid.replace(/[0-9a-f-]{36}/, '00000000-0000-4000-8000-000000000000');
  const zoo = await kms.allow({ caveats: ['tenant = zoo'] });
  const key = { tenant: 'acme', purpose: 'docs', alg: 'ed25519' };
  const twice = [...sigs, ...sigs];
  const nameless = sigs.map(({ alg, signature_b64 }: Record<string, string>) => ({ alg, signature_b64 }));
  const payload = { payload_b3: B3 };
  const change = (what: string): string => `/keys/${path(kid)}/${what}`;
  const mine = undefined;
  // Request, capability, and the expected entry.
  const asked: [string, object | undefined, Record<string, string> | undefined, string][] = [
    ['/sign', { kid: gone, ...payload }, mine, 'sign not_found'],
    ['/sign', { kid, ...payload }, zoo, 'sign forbidden'],
    ['/sign', { kid_set: [kid, kid.replace('acme', 'zoo')], ...payload }, mine, 'sign validation, sign validation'],
    ['/sign', { kid, payload_b3: B3.replace('a', 'b'), op_id: 'used' }, mine, 'sign conflict'],
    ['/verify', { kid: gone, ...payload, sigs: nameless }, mine, 'verify not_found'],
    ['/verify', { kid, ...payload, sigs: twice }, mine, 'verify validation'],
    ['/verify', { kid, ...payload, sigs }, zoo, 'verify forbidden'],
    ['/wrap', { kid, plaintext_key_b64: 'AAAA' }, mine, 'wrap validation'],
    ['/wrap', { kid: wrapping, plaintext_key_b64: 'AAAA' }, zoo, 'wrap forbidden'],
    ['/unwrap', { kid: wrapping, wrapped_b64: 'AAAA' }, mine, 'unwrap validation'],
    ['/datakey', { kid: gone }, mine, 'datakey not_found'],
    ['/derive', { kid: wrapping, label: 'mine/x' }, mine, 'derive validation'],
    ['/derive', { kid: wrapping, label: 'audience/x' }, zoo, 'derive forbidden'],
    ['/keys', key, zoo, 'create forbidden'],
    ['/keys', { ...key, op_id: 'used' }, mine, 'create conflict'],
    ['/keys/import', { ...key, purpose: 'raw', pubkey_b64: 'AAAA' }, mine, 'import validation'],
    ['/keys/import', { ...key, purpose: 'raw', pubkey_b64: 'AAAA' }, zoo, 'import forbidden'],
    [`/keys/${path(gone)}/rotate`, {}, mine, 'rotate not_found'],
    [change('rotate'), {}, zoo, 'rotate forbidden'],
    [`/keys/${path(kid.replace('#v1', ''))}/policy`, { min_version: 7 }, mine, 'policy conflict'],
    [change('policy'), { min_version: 1 }, mine, 'policy validation'],
    [change('delete'), { whole: true }, mine, 'delete validation'],
    [change('policy'), { min_version: 1 }, zoo, 'policy forbidden'],
    [change('delete'), mine, mine, 'delete conflict'],
    [`/keys/${path(gone)}/delete`, mine, mine, 'delete not_found'],
    [change('delete'), mine, zoo, 'delete forbidden'],
    [change('restore'), mine, mine, 'restore conflict'],
    [change('restore'), mine, zoo, 'restore forbidden'],
  ];
  for (const [route, body, headers] of asked) {
    const { status } = await kms.post(route, body, headers);
    assert.ok(status >= 400, route);
  }
  backend.isUnavailable = true;
  await kms.post('/sign', { kid, ...payload });
  await eventually('the backend counts as unavailable', async () =>
    /pulled out/.test((await kms.send('GET', '/readyz')).text),
  );
  for (const route of ['/sign', '/sign']) await kms.post(route, { kid, ...payload });
  await kms.post('/keys', key);
  const away = ['sign not_ready', 'sign not_ready', 'sign not_ready', 'create not_ready'];
  const begun = ['create ok', 'sign ok', 'create ok'];
  const expected = [...begun, ...asked.flatMap(([, , , recorded]) => recorded.split(', ')), ...away];
  await eventually('all are in the log', async () => (await entries(kms)).length >= expected.length);
  const recorded = (await entries(kms)).map(({ op, result }) => `${String(op)} ${String(result)}`);
  assert.deepEqual(recorded, expected);
});

test('a signature with its proof; later proofs; tiles over HTTP; a full audit from outside', async () => {
  await using kms = await startService();
  const kid = await kms.create('ed25519');
  const signed = await sign(kms, kid, { wait: 'checkpoint' });
  assert.equal(signed.status, 200, signed.text);
  const entry = assertProven(signed.json.proof);
  assert.deepEqual([entry['op'], entry['kid']], ['sign', kid]);
  const replies = await Promise.all(Array.from({ length: 600 }, () => sign(kms, kid)));
  // A slow machine may refuse some. Every signature is in the log, and a checkpoint covers it.
  const done = replies.filter(({ status }) => status === 200);
  for (const { status, text } of replies) assert.ok(status === 200 || status === 429, text);
  assert.ok(done.length >= 256, `one tenant may fill half of the queue; ${done.length} were signed`);
  await eventually('all are in the log', () => kms.kms.vault.log!.size >= 2 + done.length);
  assert.equal(await kms.metric('audit_dropped_total'), 0);
  const last = 1 + done.length;
  await eventually('a checkpoint covers them', async () => (await kms.get(`/audit/proof/${last}`)).status === 200);
  assertProven((await kms.get('/audit/proof/200')).json);
  assertRefusal(await kms.get('/audit/proof/100000'), 404, 'not_found');
  const { vkeys, origin } = (await kms.get('/audit/keys')).json;
  assert.equal(vkeys.length, 2);
  const headers = await kms.allow({ scopes: ['kms:read'] });
  await using source = urlSource(`${kms.url}/v1/kms/audit`, {
    send: (url, within) => fetch(url, { headers: { ...headers }, signal: within, redirect: 'error' }),
  });
  const audit = await verifyLog(source, vkeys, { signal: NEVER, origin });
  assert.ok(audit.ok, JSON.stringify(audit));
  assert.ok(audit.checkpoint.size >= 2 + done.length);
  const tile = await kms.get('/audit/tile/0/000');
  assert.equal(tile.headers['cache-control'], 'private, no-store');
  for (const bad of [
    '/audit/tile/0/../../index',
    '/audit/tile/0/%2e%2e/x',
    '/audit/tile/9/000',
    '/audit/tile/0/0',
    '/audit/tile/entries/999',
  ]) {
    assert.ok([400, 404].includes((await kms.get(bad)).status), bad);
  }
  const consistency = (await kms.get(`/audit/consistency/1/${audit.checkpoint.size}`)).json;
  assert.ok(Array.isArray(consistency.path_b64));
});

test('the log is public only if that is configured', async () => {
  await using kms = await startService({ flags: ['--audit.public=true'] });
  await sign(kms, await kms.create('ed25519'), { wait: 'checkpoint' });
  assert.equal((await kms.get('/audit/checkpoint', {})).status, 200);
  assertRefusal(await kms.get('/keys', {}), 401, 'unauthorized');
  await using closed = await startService();
  assertRefusal(await closed.get('/audit/checkpoint', {}), 401, 'unauthorized');
});

test('continue: signing proceeds while the log cannot be written; later a gap records the missing entries', async () => {
  const disk = new FaultyDisk();
  await using kms = await startService({ fs: disk, flags: ['--audit.mode=continue'] });
  const kid = await kms.create('ed25519');
  disk.fail('audit/entries', 'ENOSPC');
  const signed = await sign(kms, kid);
  assert.deepEqual([signed.status, signed.json.log_index], [200, undefined], signed.text);
  assert.ok((await kms.metric('audit_dropped_total')) >= 1);
  const ready = await kms.send('GET', '/readyz');
  assert.equal(ready.status, 503);
  assert.match(ready.text, /audit/);
  disk.mend();
  // On a slow disk one more request may proceed without an index.
  await eventually('entries have indexes again', async () => (await sign(kms, kid)).json.log_index > 0);
  const gap = (await entries(kms)).find(({ op }) => op === 'gap')!;
  assert.deepEqual([gap['count'], typeof gap['from'], typeof gap['to']], [1, 'number', 'number']);
  await eventually('it is ready again', async () => (await kms.send('GET', '/readyz')).status === 200);
});

test('strict: no operation runs without an entry', async () => {
  const disk = new FaultyDisk();
  await using kms = await startService({ fs: disk, flags: ['--audit.mode=strict'] });
  const kid = await kms.create('ed25519');
  disk.fail('audit/entries', 'ENOSPC');
  assertRefusal(await sign(kms, kid), 503, 'degraded_audit');
  disk.mend();
  await eventually('it signs again', async () => (await sign(kms, kid)).status === 200);
});

test('a full disk at the start: kms verifies, signs nothing without an entry, is not ready, and the log records it later', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  let kid: string;
  {
    await using kms = await startService({ dir });
    kid = await kms.create('ed25519');
    await kms.kms.drain();
  }
  const disk = await FaultyStore.open(dir);
  disk.fail('meta', 'ENOSPC');
  await using kms = await startService({ dir, store: disk });
  const refused = await sign(kms, kid);
  assertRefusal(refused, 503, 'degraded_audit');
  assert.ok(Number(refused.headers['retry-after']) > 0);
  assert.equal((await kms.send('GET', '/readyz')).status, 503);
  disk.mend();
  await eventually('it is ready again', async () => (await kms.send('GET', '/readyz')).status === 200);
  assert.equal((await entries(kms)).at(-1)?.['op'], 'gap');
});

test('a late checkpoint makes the service not ready and is counted', async () => {
  const disk = new FaultyDisk();
  const flags = ['--audit.checkpoint_deadline=50ms', '--audit.checkpoint_interval=20ms'];
  await using kms = await startService({ fs: disk, flags });
  const kid = await kms.create('ed25519');
  disk.hold('audit/checkpoint');
  await sign(kms, kid);
  await eventually('it is not ready', async () => (await kms.send('GET', '/readyz')).status === 503);
  await eventually('readiness states the delay', async () =>
    /checkpoint \d+ s late/.test((await kms.send('GET', '/readyz')).text),
  );
  for (const counter of ['kms_audit_integrity_failed_total', 'io_timeouts_total{op="checkpoint"}'])
    await eventually(`${counter} counts it`, async () => (await kms.metric(counter)) > 0);
  disk.mend();
  await eventually('it is ready again', async () => (await kms.send('GET', '/readyz')).status === 200);
});

test('a capability for one tenant or one key reads the proofs of its own entries, and learns nothing of others', async () => {
  await using kms = await startService();
  const [mine, other] = [await kms.create('ed25519', { tenant: 'zoo' }), await kms.create('ed25519')];
  const own = (await sign(kms, mine, { wait: 'checkpoint' })).json.log_index as number;
  const foreign = (await sign(kms, other, { wait: 'checkpoint' })).json.log_index as number;
  const zoo = await kms.allow({ scopes: ['kms:read'], caveats: ['tenant = zoo'] });
  const proven = await kms.get(`/audit/proof/${own}`, zoo);
  assert.equal(proven.status, 200, proven.text);
  assert.deepEqual(
    [assertProven(proven.json)['tenant'], proven.headers['cache-control']],
    ['zoo', 'private, no-store'],
  );
  const hidden = await kms.get(`/audit/proof/${foreign}`, zoo);
  const absent = await kms.get('/audit/proof/99999', zoo);
  for (const reply of [hidden, absent]) assertRefusal(reply, 404, 'not_found');
  const told = (text: string): string => text.replaceAll(/\d+/g, 'N');
  assert.equal(told(hidden.json.detail), told(absent.json.detail), 'the answers do not differ');
  const key = await kms.allow({ scopes: ['kms:read'], caveats: [`name ^= ${mine}`] });
  assert.equal((await kms.get(`/audit/proof/${own}`, key)).status, 200);
  assertRefusal(await kms.get(`/audit/proof/${foreign}`, key), 404, 'not_found');
  for (const resource of ['/audit/tile/entries/000.p/1', '/audit/checkpoint'])
    assertRefusal(await kms.get(resource, zoo), 403, 'forbidden');
});

test('caches keep a public log only', async () => {
  for (const isPublic of [true, false]) {
    await using kms = await startService({ flags: [`--audit.public=${isPublic}`] });
    await sign(kms, await kms.create('ed25519'), { wait: 'checkpoint' });
    const size = kms.kms.vault.log!.checkpoint!.size;
    for (const resource of [`tile/entries/000.p/${size}`, 'checkpoint', 'keys', 'proof/0']) {
      const reply = await kms.get(`/audit/${resource}`);
      const expected = isPublic ? /immutable|no-cache/ : /^private, no-store$/;
      assert.match(String(reply.headers['cache-control']), expected, resource);
    }
  }
});
