import assert from 'node:assert/strict';
import { floorAt } from '@ron/auth';
import { test } from 'node:test';
import { Checker, inspectToken } from '@ron/auth';
import { NEVER } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { startService } from './support.ts';

const ASK = { audience: 'storage', scopes: ['storage:get'], subject: 'alice' } as const;

test('an issued capability is accepted by its service, for the requested scopes and at most the maximum lifetime', async () => {
  await using service = await startService({ flags: ['--passport.ttl_default=2m', '--passport.ttl_max=1h'] });
  const asked = { ...ASK, ttl_ms: 1e15, caveats: ['name ^= photos/'] };
  const { status, json: body, headers } = await service.post('issue', asked);
  assert.equal(status, 201);
  assert.equal(headers['cache-control'], 'no-store');
  const said = inspectToken(body.token);
  assert.deepEqual(
    [said.audience, said.subject, said.scopes, said.texts[3]],
    ['storage', 'alice', ['storage:get'], 'name ^= photos/'],
  );
  assert.ok(Math.abs(said.expires_ms - Date.now() - 3_600_000) < 10_000, 'clamped to an hour');
  assert.equal(body.expires_ms, said.expires_ms);
  const checker = new Checker({ audience: 'storage', keys: service.passport.keys });
  const request = {
    authorization: `Bearer ${body.token}`,
    scope: 'storage:get',
    source_ip: '::1',
    facts: { name: 'photos/1' },
  } as const;
  assert.equal((await checker.checkHeaders(request, NEVER)).ok, true);

  const plain = await service.post('issue', { audience: 'storage', scopes: ['storage:get'] });
  assert.ok(Math.abs(plain.json.expires_ms - Date.now() - 120_000) < 10_000, 'two minutes by default');
  const other = await service.post('issue', { audience: 'storage', scopes: ['storage:get'] });
  assert.notEqual(plain.json.subject, other.json.subject, 'each has a unique subject');
});

test('verify returns the verdict of the service', async () => {
  await using service = await startService();
  const { token } = (await service.post('issue', ASK)).json;
  const good = await service.post('verify', { token, scope: 'storage:get' });
  assert.equal(good.status, 200);
  assert.equal(good.json.ok, true);
  assert.deepEqual([good.json.subject, good.json.audience, good.json.scopes], ['alice', 'storage', ['storage:get']]);
  assert.match((await service.post('verify', { token, scope: 'storage:put' })).json.reason, /lacks scope storage:put/);
  assert.match(
    (await service.post('verify', { token: `${token.slice(0, -2)}AA` })).json.reason,
    /signature is invalid/,
  );
  assert.match((await service.post('verify', { token: 'nonsense' })).json.reason, /not a capability/);
  const expired = await service.mint({ audience: 'storage', scopes: ['storage:get'], caveats: ['expires < 1000'] });
  assert.match((await service.post('verify', { token: expired })).json.reason, /expired/);
});

test('a revocation is durable and in force immediately, and later capabilities are valid', async (t) => {
  const dir = tempDirFor(t);
  let before: { token: string };
  let other: { token: string };
  {
    await using service = await startService({ dir });
    before = (await service.post('issue', ASK)).json;
    other = (await service.post('issue', { ...ASK, subject: 'bob' })).json;
    const revoked = await service.post('revoke', { subject: 'alice' });
    assert.equal(revoked.status, 200);
    assert.ok(revoked.json.epoch > Date.now() - 10_000);
    assert.deepEqual((await service.post('verify', { token: before.token })).json, {
      ok: false,
      reason: 'capability was revoked',
    });
    const after = (await service.post('issue', ASK)).json;
    assert.equal(
      (await service.post('verify', { token: after.token })).json.ok,
      true,
      'issued in the same millisecond or later',
    );
  }
  await using again = await startService({ dir });
  assert.equal((await again.post('verify', { token: before.token })).json.ok, false);
  assert.equal((await again.post('verify', { token: other.token })).json.ok, true);
  const own = await again.mint();
  assert.equal((await again.post('revoke', { all: true })).status, 200);
  assertRefusal(await again.post('verify', { token: other.token }, own), 401, 'unauthorized');
  const fresh = await again.mint({ epoch: floorAt(Date.now() - 1) });
  assert.equal((await again.post('verify', { token: other.token }, fresh)).json.ok, false);
});

test('a limited issuer can issue within its limits only, and never a scope that allows issuing', async () => {
  await using service = await startService();
  const limited = await service.mint({ scopes: ['passport:issue'], caveats: ['tenant = acme', 'name ^= photos/'] });
  const issue = (caveats: string[]) => service.post('issue', { ...ASK, caveats }, limited);
  assert.equal((await issue(['tenant = acme', 'name ^= photos/2024/'])).status, 201);
  assert.equal((await issue(['name ^= photos/', 'tenant = acme', 'bytes <= 10'])).status, 201);
  for (const caveats of [
    [],
    ['tenant = acme'],
    ['tenant = other', 'name ^= photos/'],
    ['tenant = acme', 'name ^= phot'],
    ['tenant = other', 'tenant = acme', 'name ^= videos/'],
  ])
    assertRefusal(await issue(caveats), 403, 'forbidden');
  assertRefusal(await service.post('revoke', { subject: 'alice' }, limited), 403, 'forbidden');
  const brief = await service.mint({ ttl_ms: 60_000, caveats: ['ip in 127.0.0.0/8', 'rate <= 5/s', 'bytes <= 1000'] });
  const heir = await service.post('issue', { ...ASK, ttl_ms: 3_600_000 }, brief);
  const { texts, expires_ms } = inspectToken(heir.json.token);
  assert.deepEqual(texts.slice(3), ['ip in 127.0.0.0/8', 'rate <= 5/s', 'bytes <= 1000']);
  assert.equal(expires_ms, inspectToken(brief).expires_ms, 'it expires with its issuer');
  assert.equal(heir.json.expires_ms, expires_ms);
  for (const [audience, scope] of [
    ['kms', 'kms:audience'],
    ['kms', 'kms:log'],
    ['passport', 'passport:issue'],
    ['passport', 'passport:revoke'],
  ])
    assertRefusal(await service.post('issue', { audience, scopes: [scope] }), 403, 'forbidden');
  assert.equal((await service.post('issue', { audience: 'kms', scopes: ['kms:sign'] })).status, 201);
});

test('invalid input is refused with the reason and does not appear in the log', async () => {
  await using service = await startService();
  const bad: [string, unknown][] = [
    ['issue', {}],
    ['issue', { ...ASK, audience: 'nobody' }],
    ['issue', { ...ASK, scopes: [] }],
    ['issue', { ...ASK, scopes: ['storage:fly'] }],
    ['issue', { ...ASK, scopes: ['kms:sign'] }],
    ['issue', { ...ASK, subject: 'a/b' }],
    ['issue', { ...ASK, ttl_ms: -1 }],
    ['issue', { ...ASK, ttl_ms: 1.5 }],
    ['issue', { ...ASK, caveats: ['flies = true'] }],
    ['issue', { ...ASK, caveats: Array.from({ length: 29 }, () => 'bytes <= 1') }],
    ['issue', { ...ASK, more: 1 }],
    ['verify', { token: 7 }],
    ['verify', { token: 'x'.repeat(8193) }],
    ['revoke', {}],
    ['revoke', { all: false }],
    ['revoke', { subject: 'alice', all: true }],
  ];
  for (const [path, body] of bad) assertRefusal(await service.post(path, body), 400, 'validation');
  for (const path of ['issue', 'verify', 'revoke']) {
    assertRefusal(await service.post(path, {}, 'AAAA'), 401, 'unauthorized');
    const reader = await service.mint({ audience: 'storage', scopes: ['storage:get'] });
    assertRefusal(await service.post(path, {}, reader), 401, 'unauthorized');
  }
  const { token } = (await service.post('issue', ASK)).json;
  await service.post('verify', { token });
  const seen = service.lines.join('\n') + (await service.metrics.text());
  assert.ok(
    !seen.includes(token) && seen.includes('"msg":"issued"'),
    'the issued capability is logged, its token is not',
  );
  assert.match(seen, /passport_issued_total\{audience="storage"\} 1/);
});
