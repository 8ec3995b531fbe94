/** Invalid requests, accidental or malicious: each gets a clear problem, never a crash or a leak. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { assertRefusal } from '@ron/testkit/service';
import { B3, path, startService, type TestKms } from './support.ts';

const UUID = '0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10';

describe('bad input', () => {
  let kms: TestKms;
  let kid: string;
  let sigs: { kid: string; alg: string; signature_b64: string }[];
  before(async () => {
    kms = await startService();
    kid = await kms.create('hybrid');
    sigs = (await kms.post('/sign', { kid, payload_b3: B3 })).json.sigs;
  });
  after(() => kms[Symbol.asyncDispose]());

  test('unknown fields, missing fields and wrong types are named', async () => {
    const make = { tenant: 'acme', purpose: 'docs', alg: 'ed25519' };
    const refused = await kms.post('/keys', { ...make, colour: 'red' });
    assertRefusal(refused, 400, 'validation');
    assert.match(refused.text, /colour/);
    assert.match((await kms.post('/keys', { ...make, alg: 'rsa' })).json.detail, /"ed25519" or .*"hybrid"/);
    const bad: [string, unknown][] = [
      ['/keys', { ...make, alg: undefined }],
      ['/keys', { ...make, alg: 'rsa' }],
      ['/keys', { ...make, alg: '__proto__' }],
      ['/keys', { ...make, tenant: 7 }],
      ['/keys', { ...make, policy: { verify_mode: 'maybe' } }],
      ['/keys', { ...make, policy: { verify_mode: 'or', extra: 1 } }],
      ['/keys', { ...make, policy: { rotate: 'no' } }],
      ['/keys', { ...make, policy: { verify_mode: 'pq_only' } }],
      ['/keys', { ...make, alg: 'x-wing', policy: { verify_mode: 'or' } }],
      ['/keys', { ...make, op_id: 'a b' }],
      ['/keys', { ...make, op_id: '' }],
      ['/keys/import', { ...make, purpose: 'docs', pubkey_b64: 'AA==' }],
      ['/keys/import', { ...make, purpose: 'raw', pubkey_b64: 'AA==' }],
      ['/keys/import', { ...make, purpose: 'raw', alg: 'hybrid', pubkey_b64: 'AA==' }],
      ['/keys/import', { ...make, purpose: 'raw', alg: 'aes-256-gcm', pubkey_b64: 'AA==' }],
      ['/sign', {}],
      ['/sign', { kid }],
      ['/sign', { payload_b3: B3 }],
      ['/sign', { kid, kid_set: [kid], payload_b3: B3 }],
      ['/sign', { kid_set: [kid, kid], payload_b3: B3 }],
      ['/sign', { kid, payload_b3: B3, message_b64: 'YQ==' }],
      ['/sign', { kid, message_b64: 'YQ==' }],
      ['/sign', { kid, payload_b3: B3.toUpperCase() }],
      ['/sign', { kid, payload_b3: `b3:${B3}` }],
      ['/sign', { kid, payload_b3: B3, wait: 'ever' }],
      ['/sign', { kid, payload_b3: B3, items: [{ kid, payload_b3: B3 }] }],
      ['/sign', { items: [{ kid, payload_b3: B3, items: [] }] }],
      ['/sign', []],
      ['/sign', null],
      ['/verify', { kid, payload_b3: B3, sigs: [] }],
      ['/verify', { kid, payload_b3: B3, sigs, policy: { mode: 'none' } }],
      ['/derive', { kid }],
      ['/derive', { kid, label: '' }],
      ['/derive', { kid, label: 'white space' }],
      ['/wrap', { kid, plaintext_key_b64: 'AAA' }],
      ['/unwrap', { kid, wrapped_b64: '====' }],
    ];
    for (const [route, body] of bad) assertRefusal(await kms.post(route, body), 400, 'validation');
  });

  test('a tenant with separators, dots or other characters is refused', async () => {
    for (const tenant of [
      'a/b',
      'a#b',
      'a b',
      '../x',
      '.',
      '..',
      '-x',
      'a\n',
      'a%2Fb',
      'ä',
      '',
      'x'.repeat(65),
      'a"b',
    ]) {
      assertRefusal(await kms.post('/keys', { tenant, purpose: 'docs', alg: 'ed25519' }), 400, 'validation');
      assertRefusal(await kms.post('/keys', { tenant: 'acme', purpose: tenant, alg: 'ed25519' }), 400, 'validation');
    }
  });

  test('kids: path tricks, other keys, versions that do not exist', async () => {
    const name = kid.slice(0, -3);
    const bad = [
      'x',
      `${name}#v0`,
      `${name}#v1#v1`,
      `${name}#v1/../x`,
      `../${name}`,
      `acme/docs/ed25519/${UUID}/x`,
      `${name}#V1`,
      `${name} `,
    ];
    for (const text of bad) {
      assertRefusal(await kms.post('/sign', { kid: text, payload_b3: B3 }), 400, 'validation');
      const reply = await kms.get(`/keys/${path(text)}`);
      assert.ok(reply.status === 400, `${text}: ${reply.text}`);
    }
    assertRefusal(await kms.post('/sign', { kid: `acme/docs/ed25519/${UUID}#v1`, payload_b3: B3 }), 404, 'not_found');
    assertRefusal(await kms.post('/sign', { kid: `${name}#v9`, payload_b3: B3 }), 404, 'not_found');
    assertRefusal(await kms.post('/sign', { kid: 'x'.repeat(300), payload_b3: B3 }), 400, 'validation');
    for (const raw of [
      '/v1/kms/keys/acme%2F..%2F..%2Fetc',
      '/v1/kms/keys/%2e%2e%2fkek',
      '/v1/kms/keys/acme%252Fdocs',
      '/v1/kms/keys/%00',
    ]) {
      assertRefusal(await kms.send('GET', raw, { headers: await kms.allow() }), 400, 'bad_path');
    }
    const unencoded = await kms.send('GET', `/v1/kms/keys/${name}`, { headers: await kms.allow() });
    assert.equal(unencoded.status, 404);
  });

  test('malformed base64 and signatures of the wrong kind', async () => {
    const [ed, pq] = sigs as [(typeof sigs)[0], (typeof sigs)[0]];
    const ask = (wanted: unknown) => kms.post('/verify', { kid, payload_b3: B3, sigs: wanted });
    for (const signature_b64 of [
      '!',
      'AAA',
      `${ed.signature_b64} `,
      ed.signature_b64.replace(/=+$/, ''),
      ed.signature_b64.replaceAll('+', '-').replaceAll('/', '_') + '_',
    ]) {
      assertRefusal(await ask([{ ...ed, signature_b64 }]), 400, 'validation');
    }
    assertRefusal(await ask([{ ...ed, alg: 'ml-dsa-44' }]), 400, 'validation');
    assertRefusal(await ask([{ ...ed, alg: 'rsa' }]), 400, 'validation');
    assertRefusal(await ask([ed, ed]), 400, 'validation');
    const swapped = await ask([{ ...ed, signature_b64: pq.signature_b64 }, pq]);
    assert.deepEqual([swapped.status, swapped.json.ok], [200, false]);
    const empty = await ask([{ ...ed, signature_b64: '' }, pq]);
    assert.deepEqual([empty.status, empty.json.ok], [200, false]);
  });

  test('signatures of several versions are refused', async () => {
    const first = await kms.create('hybrid');
    const old = (await kms.post('/sign', { kid: first, payload_b3: B3 })).json.sigs;
    const { kid: second } = (await kms.post(`/keys/${path(first)}/rotate`, {})).json;
    const now = (await kms.post('/sign', { kid: second, payload_b3: B3 })).json.sigs;
    assertRefusal(
      await kms.post('/verify', { kid: second, payload_b3: B3, sigs: [old[0], now[1]] }),
      400,
      'validation',
    );
    assertRefusal(await kms.post('/verify', { kid: second, payload_b3: B3, sigs: old }), 400, 'validation');
    const renamed = [
      { ...old[0], kid: second },
      { ...old[1], kid: second },
    ];
    const relabelled = await kms.post('/verify', { kid: second, payload_b3: B3, sigs: renamed });
    assert.deepEqual([relabelled.status, relabelled.json.ok], [200, false]);
  });

  test('a key supports its own use only', async () => {
    const [wrapping, deriving, signing] = [
      await kms.create('aes-256-gcm'),
      await kms.create('hmac-sha256'),
      await kms.create('ed25519'),
    ];
    assertRefusal(await kms.post('/sign', { kid: wrapping, payload_b3: B3 }), 400, 'validation');
    assertRefusal(await kms.post('/verify', { kid: deriving, payload_b3: B3, sigs }), 400, 'validation');
    assertRefusal(await kms.post('/wrap', { kid: signing, plaintext_key_b64: 'YQ==' }), 400, 'validation');
    assertRefusal(await kms.post('/derive', { kid: wrapping, label: 'a' }), 400, 'validation');
    assertRefusal(await kms.post('/keys', { tenant: 'acme', purpose: 'raw', alg: 'aes-256-gcm' }), 400, 'validation');
    const { wrapped_b64 } = (await kms.post('/datakey', { kid: wrapping })).json;
    const broken = Buffer.from(wrapped_b64, 'base64');
    broken[broken.length - 1]! ^= 1;
    assertRefusal(
      await kms.post('/unwrap', { kid: wrapping, wrapped_b64: broken.toString('base64') }),
      400,
      'validation',
    );
  });

  test('no request returns a private key', async () => {
    for (const route of [`/keys/${path(kid)}/export`, `/keys/${path(kid)}/private`, '/export']) {
      const reply = await kms.get(route);
      assert.ok([404, 405].includes(reply.status), route);
    }
    const wrong = await kms.send('DELETE', `/v1/kms/keys/${path(kid)}`, { headers: await kms.allow() });
    assertRefusal(wrong, 405, 'method_not_allowed');
  });

  test('any JSON to any route gets a response, and never a 500', async () => {
    const value = fc.oneof(
      fc.json(),
      fc.constantFrom('{"kid":{}}', '{"items":[[]]}', '{"__proto__":{}}', '{', '"', '\u0000', '[[[[['),
    );
    const route = fc.constantFrom(
      '/keys',
      '/keys/import',
      '/sign',
      '/verify',
      '/wrap',
      '/unwrap',
      '/datakey',
      '/derive',
      `/keys/${path(kid)}/rotate`,
      '/keys/x/policy',
    );
    const headers = { ...(await kms.allow()), 'content-type': 'application/json' };
    await fc.assert(
      fc.asyncProperty(route, value, async (to, body) => {
        const reply = await kms.send('POST', `/v1/kms${to}`, { headers, body });
        // [kms I-10]
        assert.ok(reply.status < 500, `${to} ${body}: ${reply.text}`);
      }),
      { numRuns: 150 },
    );
  });
});
