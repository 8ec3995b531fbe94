/** Authorisation: scopes, tenants and labels are checked before the operation runs. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { attenuate, mint } from '@ron/auth';
import { NEVER } from '@ron/kernel';
import { scopesOf } from '@ron/proto';
import { assertRefusal } from '@ron/testkit/service';
import { B3, path, startService, type TestKms } from './support.ts';

describe('capabilities', () => {
  let kms: TestKms;
  let kid: string;
  before(async () => {
    kms = await startService();
    kid = await kms.create('ed25519');
  });
  after(() => kms[Symbol.asyncDispose]());

  test('each route requires its scope, and a request without a capability is refused', async () => {
    const routes: [string, string, unknown?][] = [
      ['kms:create', '/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' }],
      ['kms:rotate', `/keys/${path(kid)}/rotate`, {}],
      ['kms:delete', `/keys/${path(kid)}/policy`, { min_version: 1 }],
      ['kms:delete', `/keys/${path(kid)}/disable`],
      ['kms:delete', `/keys/${path(kid)}/enable`],
      ['kms:delete', `/keys/${path(kid)}/delete`],
      ['kms:delete', `/keys/${path(kid)}/restore`],
      ['kms:sign', '/sign', { kid, payload_b3: B3 }],
      ['kms:verify', '/verify', { kid, payload_b3: B3, sigs: [{ alg: 'ed25519', signature_b64: 'YQ==' }] }],
      ['kms:wrap', '/wrap', { kid, plaintext_key_b64: 'YQ==' }],
      ['kms:wrap', '/datakey', { kid }],
      ['kms:unwrap', '/unwrap', { kid, wrapped_b64: 'YQ==' }],
      ['kms:derive', '/derive', { kid, label: 'a' }],
      ['kms:audience', '/audience/derive', { audience: 'storage' }],
      ['kms:audience', '/audience/rotate', { version: 1 }],
      ['kms:audience', '/audience/retire', { min_version: 1 }],
      ['kms:audit', '/audit/prune', { before: 256 }],
    ];
    const size = kms.kms.vault.log!.size;
    for (const [scope, route, body] of routes) {
      assertRefusal(await kms.post(route, body, {}), 401, 'unauthorized');
      const scopes = scopesOf('kms').filter((name) => name !== scope);
      assertRefusal(await kms.post(route, body, await kms.allow({ scopes })), 403, 'forbidden');
    }
    for (const route of [
      '/keys',
      `/keys/${path(kid)}`,
      '/audit/checkpoint',
      '/audit/keys',
      '/audit/proof/0',
      '/audit/pruned',
      '/attestation',
    ]) {
      assertRefusal(await kms.get(route, {}), 401, 'unauthorized');
      assertRefusal(await kms.get(route, await kms.allow({ scopes: ['kms:sign'] })), 403, 'forbidden');
    }
    assert.equal(kms.kms.vault.log!.size, size, 'nothing was done');
  });

  test('a capability for one tenant: in paths, bodies, batches and lists', async () => {
    const other = await kms.create('ed25519', { tenant: 'zoo' });
    const acme = await kms.allow({ caveats: ['tenant = acme'] });
    assert.equal((await kms.post('/sign', { kid, payload_b3: B3 }, acme)).status, 200);
    assertRefusal(await kms.post('/sign', { kid: other, payload_b3: B3 }, acme), 403, 'forbidden');
    const items = [
      { kid, payload_b3: B3 },
      { kid: other, payload_b3: B3 },
    ];
    assertRefusal(await kms.post('/sign', { items }, acme), 403, 'forbidden');
    assertRefusal(await kms.post('/sign', { kid_set: [kid, other], payload_b3: B3 }, acme), 403, 'forbidden');
    assertRefusal(await kms.post('/sign', { kid_set: [kid, other], payload_b3: B3 }), 400, 'validation');
    assertRefusal(await kms.post('/keys', { tenant: 'zoo', purpose: 'docs', alg: 'ed25519' }, acme), 403, 'forbidden');
    assertRefusal(await kms.post(`/keys/${path(other)}/rotate`, {}, acme), 403, 'forbidden');
    assertRefusal(await kms.get(`/keys/${path(other)}`, acme), 403, 'forbidden');
    assertRefusal(await kms.get('/keys', acme), 403, 'forbidden');
    assert.ok(
      (await kms.get('/keys?tenant=acme', acme)).json.keys.every((key: { kid: string }) => key.kid.startsWith('acme/')),
    );
    assertRefusal(await kms.get('/keys?tenant=zoo', acme), 403, 'forbidden');
  });

  test('a capability for one tenant or key reads the public keys of the log, but neither checkpoints nor tiles', async () => {
    for (const caveat of ['tenant = acme', `name ^= ${kid}`]) {
      const limited = await kms.allow({ caveats: [caveat] });
      assert.equal((await kms.get('/audit/keys', limited)).status, 200, caveat);
      assertRefusal(await kms.get('/audit/checkpoint', limited), 403, 'forbidden');
      assertRefusal(await kms.get('/audit/tile/entries/000.p/1', limited), 403, 'forbidden');
    }
    const labelled = await kms.allow({ caveats: ['label ^= a'] });
    assertRefusal(await kms.get('/audit/keys', labelled), 403, 'forbidden');
    const signer = await kms.allow({ scopes: ['kms:sign'], caveats: ['tenant = acme'] });
    assertRefusal(await kms.get('/audit/keys', signer), 403, 'forbidden');
  });

  test('a capability for one key: every kid of a request must begin with the name', async () => {
    const other = await kms.create('ed25519');
    const name = kid.slice(0, -3);
    const limited = await kms.allow({ caveats: [`name ^= ${name}`] });
    const on = { kid, payload_b3: B3 };
    const signed = await kms.post('/sign', on, limited);
    assert.equal(signed.status, 200, signed.text);
    assert.equal((await kms.post('/sign', { kid: name, payload_b3: B3 }, limited)).status, 200);
    const { sigs } = signed.json;
    assert.ok((await kms.post('/verify', { ...on, sigs }, limited)).json.ok);
    assert.equal((await kms.get(`/keys/${path(kid)}`, limited)).status, 200);
    for (const [route, body] of [
      ['/sign', { kid: other, payload_b3: B3 }],
      ['/sign', { kid_set: [kid, other], payload_b3: B3 }],
      ['/sign', { items: [on, { kid: other, payload_b3: B3 }] }],
      ['/verify', { kid: other, payload_b3: B3, sigs }],
      ['/wrap', { kid: other, plaintext_key_b64: 'YQ==' }],
      ['/datakey', { kid: other }],
      ['/unwrap', { kid: other, wrapped_b64: 'YQ==' }],
      ['/derive', { kid: other, label: 'a' }],
      ['/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' }],
      ['/keys/import', { tenant: 'acme', purpose: 'raw', alg: 'ed25519', pubkey_b64: 'YQ==' }],
      [`/keys/${path(other)}/rotate`, {}],
      [`/keys/${path(other)}/policy`, { min_version: 1 }],
      [`/keys/${path(other)}/disable`],
      [`/keys/${path(other)}/enable`],
      [`/keys/${path(other)}/delete`],
      [`/keys/${path(other)}/restore`],
    ] as [string, unknown?][])
      assertRefusal(await kms.post(route, body, limited), 403, 'forbidden');
    assertRefusal(await kms.get(`/keys/${path(other)}`, limited), 403, 'forbidden');
  });

  test('a capability for some names: lists state a prefix, and new keys lie below it', async () => {
    const docs = await kms.allow({ caveats: ['name ^= acme/docs/'] });
    const made = await kms.post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' }, docs);
    assert.equal(made.status, 201, made.text);
    await kms.create('ed25519', { purpose: 'docs2' });
    assertRefusal(
      await kms.post('/keys', { tenant: 'acme', purpose: 'docs2', alg: 'ed25519' }, docs),
      403,
      'forbidden',
    );
    for (const query of ['', '?tenant=acme', '?prefix=acme/', '?prefix=acme/docs'])
      assertRefusal(await kms.get(`/keys${query}`, docs), 403, 'forbidden');
    const listed = (await kms.get('/keys?prefix=acme/docs/', docs)).json.keys as { kid: string }[];
    assert.ok(listed.some((key) => key.kid === made.json.kid));
    assert.ok(listed.every((key) => key.kid.startsWith('acme/docs/')));
    // A prefix ends where the caveat ends: version 1 is also the beginning of version 10.
    const version = await kms.allow({ caveats: [`name ^= ${kid}`] });
    assert.equal((await kms.post('/sign', { kid, payload_b3: B3 }, version)).status, 200);
    assertRefusal(await kms.post('/sign', { kid: kid.slice(0, -3), payload_b3: B3 }, version), 403, 'forbidden');
  });

  test('a capability for labels: derive only below the prefix', async () => {
    const secret = await kms.create('hmac-sha256');
    const storage = await kms.allow({ scopes: ['kms:derive'], caveats: ['label ^= keys/storage/'] });
    assert.equal((await kms.post('/derive', { kid: secret, label: 'keys/storage/1' }, storage)).status, 200);
    assertRefusal(await kms.post('/derive', { kid: secret, label: 'keys/index/1' }, storage), 403, 'forbidden');
    assertRefusal(await kms.post('/derive', { kid: secret, label: 'keys/storage' }, storage), 403, 'forbidden');
  });

  test('expired, narrowed, forged and foreign capabilities', async () => {
    const minted = await mint(kms.kms.keys, { audience: 'kms', scopes: ['kms:sign'], ttl_ms: 60_000 }, NEVER);
    const ask = (token: string) => kms.post('/sign', { kid, payload_b3: B3 }, { authorization: `Bearer ${token}` });
    assert.equal((await ask(minted.token)).status, 200);
    assert.equal((await ask(minted.token)).status, 200, 'a capability can be used repeatedly');
    assertRefusal(await ask(attenuate(minted.token, ['expires < 1'])), 401, 'unauthorized');
    assertRefusal(await ask(attenuate(minted.token, ['scopes in kms:read'])), 403, 'forbidden');
    assertRefusal(await ask(attenuate(minted.token, ['bytes <= 10'])), 403, 'forbidden');
    const forged = Buffer.from(minted.token, 'base64url');
    const at = forged.indexOf('kms:sign');
    forged.write('kms:read', at);
    assertRefusal(await ask(forged.toString('base64url')), 401, 'unauthorized');
    const foreign = await mint(kms.kms.keys, { audience: 'storage', scopes: ['storage:get'], ttl_ms: 60_000 }, NEVER);
    assertRefusal(await ask(foreign.token), 401, 'unauthorized');
  });
});
