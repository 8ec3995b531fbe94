/** `/admin/providers`, behind a real listener. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHmac } from 'node:crypto';
import { leaks } from '@ron/auth/testing';
import { INTEROP_LIMITS } from '@ron/proto';
import { assertRefusal, send } from '@ron/testkit/service';
import { FakeKms, SECOND, SECRET, THIRD } from '../../src/providers/testing/support.ts';
import { listening } from './support.ts';

const PATH = '/admin/providers/github';
const GITHUB = { scheme: 'github', secret: SECRET } as const;
const GENERIC = {
  template: '{timestamp}.{id}.{body}',
  signature_header: 'X-Sign',
  timestamp_header: 'X-Time',
  id_header: 'X-Id',
  encoding: 'base64',
  algorithm: 'sha512',
} as const;
const BYTES = Buffer.from('the decoded bytes of a standard secret');

for (const secret of [SECRET, SECOND, THIRD, BYTES]) leaks.secret('a webhook secret', secret);

test('a provider is added with 201, replaced with 200, listed, rotated and removed; each change is audited', async (t) => {
  const { call, audited } = await listening(t);
  const added = await call('PUT', PATH, { ...GITHUB, networks: ['192.0.2.0/24'] });
  assert.equal(added.status, 201, added.text);
  const { secrets, ...descriptor } = added.json;
  assert.deepEqual(descriptor, {
    name: 'github',
    scheme: 'github',
    topic: 'hooks.github',
    networks: ['192.0.2.0/24'],
    origins: [],
    limits: { rps: 100, inflight: 64 },
  });
  assert.deepEqual(Object.keys(secrets[0]), ['version', 'kind', 'created_ms', 'uses']);
  assert.equal((await call('PUT', PATH, { scheme: 'github' })).status, 200);
  const rotated = await call('POST', `${PATH}/rotate`, { secret: SECOND, overlap_ms: 60_000 });
  assert.equal(rotated.status, 200, rotated.text);
  assert.deepEqual((await call('GET', PATH)).json, rotated.json);
  assert.deepEqual((await call('GET', '/admin/providers')).json, { providers: [rotated.json] });
  assertRefusal(await call('POST', `${PATH}/rotate`, { secret: THIRD }), 409, 'conflict');
  assert.equal((await call('DELETE', PATH)).status, 204);
  assertRefusal(await call('GET', PATH), 404, 'not_found');
  assertRefusal(await call('DELETE', PATH), 404, 'not_found');
  assertRefusal(await call('POST', `${PATH}/rotate`, { secret: THIRD }), 404, 'not_found');
  assert.deepEqual(
    audited.map(
      (event) => event.kind === 'admin' && [event.action, event.provider, event.subject, event.capability_id],
    ),
    ['add provider', 'replace provider', 'rotate secret', 'remove provider'].map((action) => [
      action,
      'github',
      'operator',
      'cap-1',
    ]),
  );
});

test('every route needs interop:admin, and no answer may be stored', async (t) => {
  const { call } = await listening(t);
  const requests: [string, string, unknown?][] = [
    ['PUT', PATH, GITHUB],
    ['GET', PATH],
    ['GET', '/admin/providers'],
    ['POST', `${PATH}/rotate`, { secret: SECOND }],
    ['POST', `${PATH}/test`],
    ['DELETE', PATH],
  ];
  for (const [method, path, body] of requests) {
    for (const scope of ['', 'interop:put', 'interop:get']) {
      assertRefusal(await call(method, path, body, scope), 401, 'unauthorized');
    }
    const allowed = await call(method, path, body);
    assert.ok(allowed.status < 300, `${method} ${path}: ${allowed.text}`);
    assert.equal(allowed.headers['cache-control'], 'no-store');
  }
});

test('a field beyond its limit, or unknown, is refused by name, and the answer never repeats the secret', async (t) => {
  const { call, providers, lines, metrics, audited } = await listening(t);
  const { networks, origins, rps_max, inflight_max, overlap_ms_max, secret_bytes_max } = INTEROP_LIMITS;
  const many = (count: number): string[] => Array.from({ length: count }, (_, at) => `10.0.${at}.0/24`);
  const put: [unknown, RegExp][] = [
    [{ secret: SECRET }, /scheme/],
    [{ ...GITHUB, scheme: 'gitlab' }, /scheme/],
    [{ ...GITHUB, more: 1 }, /more/],
    [{ ...GITHUB, topic: 'orders' }, /topic/],
    [{ ...GITHUB, networks: many(networks + 1) }, /networks/],
    [{ ...GITHUB, networks: ['10.0.0.1/8'] }, /networks/],
    [{ ...GITHUB, origins: Array.from({ length: origins + 1 }, (_, at) => `https://a${at}.example`) }, /origins/],
    [{ ...GITHUB, origins: ['a'] }, /origins/],
    [{ ...GITHUB, limits: { rps: rps_max + 1 } }, /rps/],
    [{ ...GITHUB, limits: { inflight: inflight_max + 1 } }, /inflight/],
    [{ ...GITHUB, limits: { rps: 0 } }, /rps/],
    [{ ...GITHUB, limits: { burst: 1 } }, /burst/],
    [{ ...GITHUB, [SECRET]: 1 }, /has an unknown field"/],
    [{ ...GITHUB, limits: { [SECRET]: 1 } }, /has an unknown field"/],
    [{ ...GITHUB, generic: GENERIC }, /generic/],
    [{ ...GITHUB, scheme: 'generic' }, /generic/],
    [{ ...GITHUB, scheme: 'generic', generic: { ...GENERIC, template: '{body}{id}' } }, /template/],
    [{ ...GITHUB, secret: 1 }, /secret/],
    [{ ...GITHUB, secret: [SECRET] }, /secret/],
    [{ ...GITHUB, secret: SECRET.slice(0, 15) }, /15 bytes/],
    [{ ...GITHUB, secret: 'é'.repeat(secret_bytes_max / 2 + 1) }, /514 bytes/],
    [{ ...GITHUB, secret: SECRET.repeat(40) }, /secret/],
    [{ ...GITHUB, secret: `${SECRET}\n` }, /white space/],
    [{ ...GITHUB, scheme: 'standard' }, /whsec_/],
    [{ ...GITHUB, scheme: 'standard', secret: `whsec_${SECRET}` }, /base64/],
    [{ ...GITHUB, scheme: 'standard', secret: `whsk_${BYTES.toString('base64')}` }, /private key/],
  ];
  for (const [body, message] of put) {
    const reply = await call('PUT', PATH, body);
    assertRefusal(reply, 400, 'validation');
    assert.match(reply.text, message);
  }
  for (const name of ['A', 'a.b', 'a'.repeat(33), '%2e'])
    assert.ok((await call('PUT', `/admin/providers/${name}`, GITHUB)).status >= 400, name);
  assertRefusal(await call('PUT', PATH, `{"secret":"${SECRET}",`), 400, 'bad_request');
  assertRefusal(await call('PUT', PATH, { ...GITHUB, topic: 'x'.repeat(64 * 1024) }), 413, 'payload_too_large');
  assert.deepEqual(providers.list(), []);
  await call('PUT', PATH, GITHUB);
  for (const body of [
    {},
    { secret: SECOND, overlap_ms: overlap_ms_max + 1 },
    { secret: SECOND, overlap_ms: -1 },
    { secret: SECOND, overlap: 1 },
    { secret: SECOND, [SECOND]: 1 },
  ])
    assertRefusal(await call('POST', `${PATH}/rotate`, body), 400, 'validation');
  leaks.shown('the log', lines.join('\n'));
  leaks.shown('metrics', await metrics.text());
  leaks.shown('audit', JSON.stringify(audited));
});

test('while kms is away, a new secret is refused with 503 and the reason', async (t) => {
  const kms = new FakeKms();
  const { call, audited } = await listening(t, { kms });
  kms.isAway = true;
  const reply = await call('PUT', PATH, GITHUB);
  assertRefusal(reply, 503, 'not_ready');
  assert.equal(reply.headers['x-reason'], 'DOWNSTREAM_UNAVAILABLE');
  assert.match(reply.problem!.detail, /kms cannot wrap the secret: nothing was changed/);
  assert.ok(reply.headers['retry-after']);
  assert.deepEqual(audited, []);
});

test('a test delivers a signed sample in every scheme, marked with ron-test', async (t) => {
  const { call, delivered } = await listening(t);
  const whsec = `whsec_${BYTES.toString('base64')}`;
  const requests = {
    github: GITHUB,
    slack: { scheme: 'slack', secret: SECRET },
    stripe: { scheme: 'stripe', secret: whsec },
    standard: { scheme: 'standard', secret: whsec },
    generic: { scheme: 'generic', secret: SECRET, generic: GENERIC },
  };
  for (const [name, request] of Object.entries(requests)) {
    assert.equal((await call('PUT', `/admin/providers/${name}`, request)).status, 201);
    for (let at = 0; at < 2; at++) {
      const reply = await call('POST', `/admin/providers/${name}/test`);
      assert.equal(reply.status, 200, `${name}: ${reply.text}`);
      const { delivery, receipt } = delivered.at(-1)!;
      assert.equal(reply.json.receipt, receipt.id);
      assert.equal(delivery.provider, name);
      assert.equal(delivery.headers['ron-test'], '1');
    }
    const [first, second] = delivered.slice(-2);
    assert.notEqual(first!.delivery.idempotency_key, second!.delivery.idempotency_key, 'no sample is a duplicate');
    const [secret] = (await call('GET', `/admin/providers/${name}`)).json.secrets;
    assert.equal(secret.uses, 2);
    assert.ok(secret.last_used_ms > 0);
  }
});

test('a provider with a public key only cannot be tested', async (t) => {
  const { call, delivered } = await listening(t);
  await call('PUT', '/admin/providers/std', {
    scheme: 'standard',
    secret: `whpk_${Buffer.alloc(32, 7).toString('base64')}`,
  });
  assertRefusal(await call('POST', '/admin/providers/std/test'), 400, 'validation');
  assertRefusal(await call('POST', '/admin/providers/none/test'), 404, 'not_found');
  assert.deepEqual(delivered, []);
});

test('a delivery is verified with the secret in force: a rotated-out one gets 401, a foreign network 403', async (t) => {
  const { call, url, delivered } = await listening(t);
  const deliver = (secret: string) => {
    const body = '{"action":"opened"}';
    const signature = `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;
    const headers = { 'content-type': 'application/json', 'x-hub-signature-256': signature };
    return send(url, 'POST', '/webhooks/github', { headers, body });
  };
  await call('PUT', PATH, { ...GITHUB, networks: ['127.0.0.0/8'] });
  assert.equal((await deliver(SECRET)).status, 202);
  await call('POST', `${PATH}/rotate`, { secret: SECOND });
  assert.equal((await deliver(SECRET)).status, 202);
  assert.equal((await deliver(SECOND)).status, 202);
  await call('POST', `${PATH}/rotate`, { secret: THIRD, overlap_ms: 0 });
  for (const secret of [SECRET, SECOND]) {
    const reply = await deliver(secret);
    assertRefusal(reply, 401, 'unauthorized');
    assert.equal(reply.headers['x-reason'], 'BAD_ORIGIN');
  }
  assert.equal((await deliver(THIRD)).status, 202);
  await call('PUT', PATH, { scheme: 'github', networks: ['192.0.2.0/24'] });
  assertRefusal(await deliver(THIRD), 403, 'forbidden');
  await call('DELETE', PATH);
  const unknown = await deliver(THIRD);
  assertRefusal(unknown, 404, 'not_found');
  assert.equal(unknown.headers['x-reason'], 'POLICY_BLOCKED');
  assert.equal(delivered.length, 4);
});
