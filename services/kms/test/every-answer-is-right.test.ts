/** The documented response of each route. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createPublicKey, generateKeyPairSync, sign, verify } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ALGS } from '@ron/custody';
import { tempDir } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { B3, path, startService, type TestKms } from './support.ts';

const publicKey = (pubkey_b64: string) =>
  createPublicKey({ key: Buffer.from(pubkey_b64, 'base64'), format: 'der', type: 'spki' });
const signedBytes = (kid: string): Buffer => Buffer.from(`ron-kms/v1\n${kid}\n${B3}\n`);

describe('kms answers', () => {
  let kms: TestKms;
  before(async () => {
    kms = await startService();
  });
  after(() => kms[Symbol.asyncDispose]());

  test('keys of every algorithm have the documented names and public parts', async () => {
    for (const alg of ALGS) {
      const reply = await kms.post('/keys', { tenant: 'acme', purpose: 'docs', alg });
      assert.equal(reply.status, 201, reply.text);
      assert.match(
        reply.json.kid,
        new RegExp(`^acme/docs/${alg}/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}#v1$`),
      );
      assert.equal(reply.json.alg, alg);
      assert.equal(reply.headers['cache-control'], 'no-store');
      const symmetric = alg === 'aes-256-gcm' || alg === 'hmac-sha256';
      assert.equal('pubkey_b64' in reply.json.public, !symmetric && alg !== 'hybrid');
      assert.deepEqual(
        reply.json.public.parts?.map((part: { alg: string }) => part.alg),
        alg === 'hybrid' ? ['ed25519', 'ml-dsa-65'] : undefined,
      );
    }
  });

  test('signatures verify with plain node:crypto over the documented bytes, and here', async () => {
    for (const alg of ['ed25519', 'ml-dsa-44', 'ml-dsa-65', 'ml-dsa-87', 'hybrid']) {
      const kid = await kms.create(alg);
      const signed = await kms.post('/sign', { kid, payload_b3: B3 });
      assert.equal(signed.status, 200, signed.text);
      assert.equal(signed.json.kid, kid);
      assert.ok(Number.isInteger(signed.json.log_index));
      const shown = (await kms.get(`/keys/${path(kid)}`)).json;
      const parts = shown.public.parts ?? [{ alg, pubkey_b64: shown.public.pubkey_b64 }];
      assert.equal(signed.json.sigs.length, parts.length);
      for (const [at, part] of parts.entries()) {
        const sig = signed.json.sigs[at];
        assert.equal(sig.alg, part.alg);
        assert.equal(sig.kid, kid);
        assert.ok(verify(null, signedBytes(kid), publicKey(part.pubkey_b64), Buffer.from(sig.signature_b64, 'base64')));
      }
      const good = await kms.post('/verify', { kid, payload_b3: B3, sigs: signed.json.sigs });
      assert.deepEqual([good.status, good.json.ok], [200, true], good.text);
      const other = B3.replace('a', 'b');
      const bad = await kms.post('/verify', { kid, payload_b3: other, sigs: signed.json.sigs });
      assert.deepEqual([bad.status, bad.json.ok], [200, false], bad.text);
      assert.equal(typeof bad.json.details.reason, 'string');
    }
  });

  test('the openssl command verifies an Ed25519 signature', async (t) => {
    await using dir = await tempDir();
    const kid = await kms.create('ed25519');
    const signed = (await kms.post('/sign', { kid, payload_b3: B3 })).json;
    const shown = (await kms.get(`/keys/${path(kid)}`)).json;
    const at = (name: string): string => join(dir.path, name);
    writeFileSync(at('key.der'), Buffer.from(shown.public.pubkey_b64, 'base64'));
    writeFileSync(at('message'), signedBytes(kid));
    writeFileSync(at('sig'), Buffer.from(signed.sigs[0].signature_b64, 'base64'));
    const check = (): string =>
      execFileSync(
        'openssl',
        [
          'pkeyutl',
          '-verify',
          '-pubin',
          '-keyform',
          'DER',
          '-inkey',
          at('key.der'),
          '-rawin',
          '-in',
          at('message'),
          '-sigfile',
          at('sig'),
        ],
        { stdio: 'pipe' },
      ).toString();
    try {
      execFileSync('openssl', ['version'], { stdio: 'pipe' });
    } catch {
      return t.skip('the openssl command is not here: install openssl');
    }
    assert.match(check(), /Verified Successfully/);
    writeFileSync(at('message'), `${signedBytes(kid).toString()} `);
    assert.throws(check);
  });

  test('several keys sign one payload; a batch signs many', async () => {
    const [a, b] = [await kms.create('ed25519'), await kms.create('ml-dsa-44')];
    const set = await kms.post('/sign', { kid_set: [a, b], payload_b3: B3 });
    assert.deepEqual(
      set.json.sigs.map((sig: { kid: string }) => sig.kid),
      [a, b],
    );
    const items = Array.from({ length: 128 }, (_, at) => ({ kid: a, payload_b3: B3.slice(0, 61) + String(at + 100) }));
    const batch = await kms.post('/sign', { items });
    assert.equal(batch.status, 200, batch.text);
    assert.equal(batch.json.items.length, 128);
    const places = batch.json.items.map((item: { log_index: number }) => item.log_index);
    assert.deepEqual(
      places,
      places.toSorted((x: number, y: number) => x - y),
    );
    for (const [at, item] of batch.json.items.entries()) {
      const check = await kms.post('/verify', { kid: a, payload_b3: items[at]!.payload_b3, sigs: item.sigs });
      assert.ok(check.json.ok);
    }
  });

  test('keys with purpose raw sign and verify bytes; imported keys only verify', async () => {
    const kid = await kms.create('ed25519', { purpose: 'raw' });
    const message_b64 = Buffer.from('any bytes').toString('base64');
    const signed = (await kms.post('/sign', { kid, message_b64 })).json;
    assert.ok((await kms.post('/verify', { kid, message_b64, sigs: signed.sigs })).json.ok);
    assertRefusal(await kms.post('/sign', { kid, payload_b3: B3 }), 400, 'validation');
    const pair = generateKeyPairSync('ed25519');
    const pubkey_b64 = pair.publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
    const imported = await kms.post('/keys/import', { tenant: 'acme', purpose: 'raw', alg: 'ed25519', pubkey_b64 });
    assert.equal(imported.status, 201, imported.text);
    const signature_b64 = sign(null, Buffer.from('any bytes'), pair.privateKey).toString('base64');
    const check = { kid: imported.json.kid, message_b64, sigs: [{ alg: 'ed25519', signature_b64 }] };
    assert.ok((await kms.post('/verify', check)).json.ok);
    assertRefusal(await kms.post('/sign', { kid: imported.json.kid, message_b64 }), 409, 'conflict');
    assert.equal((await kms.get(`/keys/${path(imported.json.kid)}`)).json.attestation_class, 'imported');
  });

  test('rotation: the new version signs, the old one only verifies, and not below min_version', async () => {
    const v1 = await kms.create('ed25519');
    const name = v1.slice(0, -3);
    const old = (await kms.post('/sign', { kid: v1, payload_b3: B3 })).json;
    const rotated = await kms.post(`/keys/${path(v1)}/rotate`, {});
    assert.equal(rotated.status, 200, rotated.text);
    assert.deepEqual([rotated.json.kid, rotated.json.previous], [`${name}#v2`, v1]);
    assertRefusal(await kms.post(`/keys/${path(v1)}/rotate`, {}), 409, 'conflict');
    assertRefusal(await kms.post('/sign', { kid: v1, payload_b3: B3 }), 409, 'conflict');
    assert.equal((await kms.post('/sign', { kid: name, payload_b3: B3 })).json.kid, `${name}#v2`);
    assert.ok((await kms.post('/verify', { kid: v1, payload_b3: B3, sigs: old.sigs })).json.ok);
    assert.ok((await kms.post('/verify', { kid: name, payload_b3: B3, sigs: old.sigs })).json.ok);
    assert.deepEqual((await kms.get(`/keys/${path(name)}`)).json.versions, ['#v1', '#v2']);
    assert.equal((await kms.post(`/keys/${path(name)}/policy`, { min_version: 2 })).status, 200);
    const below = (await kms.post('/verify', { kid: v1, payload_b3: B3, sigs: old.sigs })).json;
    assert.equal(below.ok, false);
    assert.match(below.details.reason, /min_version/);
    assertRefusal(await kms.post(`/keys/${path(name)}/policy`, { min_version: 3 }), 409, 'conflict');
    assert.equal((await kms.post(`/keys/${path(name)}/policy`, { min_version: 1 })).status, 200);
    assert.ok((await kms.post('/verify', { kid: v1, payload_b3: B3, sigs: old.sigs })).json.ok);
  });

  test('a key that was created with rotate: false keeps its only version', async () => {
    const kid = await kms.create('ed25519', { purpose: 'raw', policy: { rotate: false } });
    const name = kid.slice(0, -3);
    for (const target of [kid, name]) {
      const refused = await kms.post(`/keys/${path(target)}/rotate`, {});
      assertRefusal(refused, 409, 'conflict');
      assert.match(refused.json.detail, /rotate: false: create a new key/);
    }
    const { rotate, versions } = (await kms.get(`/keys/${path(name)}`)).json;
    assert.deepEqual([rotate, versions], [false, ['#v1']]);
    const listed = (await kms.get(`/keys?prefix=${encodeURIComponent(name)}`)).json.keys;
    assert.deepEqual(
      listed.map((key: { rotate: boolean }) => key.rotate),
      [false],
    );
    assert.equal((await kms.get(`/keys/${path(await kms.create('ed25519'))}`)).json.rotate, true);
  });

  test('verify modes: a request may be stricter than the key, never weaker', async () => {
    const kid = await kms.create('hybrid');
    const { sigs } = (await kms.post('/sign', { kid, payload_b3: B3 })).json;
    const [ed, pq] = sigs;
    const ask = (wanted: unknown[], mode?: string, of = kid) =>
      kms.post('/verify', { kid: of, payload_b3: B3, sigs: wanted, ...(mode && { policy: { mode } }) });
    assert.ok((await ask(sigs)).json.ok);
    assert.equal((await ask([ed])).json.ok, false);
    assert.equal((await ask([pq])).json.ok, false);
    assertRefusal(await ask([pq], 'pq_only'), 403, 'reject_policy');
    assertRefusal(await ask([ed], 'or'), 403, 'reject_policy');
    const loose = await kms.create('hybrid', { policy: { verify_mode: 'or' } });
    const [looseEd, loosePq] = (await kms.post('/sign', { kid: loose, payload_b3: B3 })).json.sigs;
    assert.ok((await ask([looseEd], undefined, loose)).json.ok);
    assert.equal((await ask([looseEd], 'pq_only', loose)).json.ok, false);
    assert.ok((await ask([loosePq], 'pq_only', loose)).json.ok);
    assert.equal((await ask([loosePq], 'and', loose)).json.ok, false);
    assert.equal((await ask([looseEd, loosePq], 'and', loose)).json.details.satisfied_mode, 'and');
    const classic = await kms.create('ed25519');
    const [only] = (await kms.post('/sign', { kid: classic, payload_b3: B3 })).json.sigs;
    assert.match((await ask([only], 'pq_only', classic)).json.details.reason, /post-quantum/);
  });

  test('wrap, unwrap and datakey; older versions unwrap; the additional data must match', async () => {
    for (const alg of ['aes-256-gcm', 'x-wing']) {
      const kid = await kms.create(alg);
      const plaintext_key_b64 = Buffer.alloc(32, 7).toString('base64');
      const aad_b64 = Buffer.from('object 1').toString('base64');
      const wrapped = await kms.post('/wrap', { kid, plaintext_key_b64, aad_b64 });
      assert.equal(wrapped.status, 200, wrapped.text);
      assert.deepEqual([wrapped.json.kid, wrapped.json.alg], [kid, alg]);
      const { wrapped_b64 } = wrapped.json;
      await kms.post(`/keys/${path(kid)}/rotate`, {});
      const back = await kms.post('/unwrap', { kid, wrapped_b64, aad_b64 });
      assert.deepEqual(back.json, { plaintext_key_b64 });
      assert.equal(back.headers['cache-control'], 'no-store');
      assertRefusal(await kms.post('/unwrap', { kid, wrapped_b64 }), 400, 'validation');
      assertRefusal(
        await kms.post('/unwrap', { kid: kid.replace('#v1', '#v2'), wrapped_b64, aad_b64 }),
        400,
        'validation',
      );
      const made = (await kms.post('/datakey', { kid: kid.slice(0, -3) })).json;
      assert.equal(Buffer.from(made.plaintext_key_b64, 'base64').length, 32);
      const same = (await kms.post('/unwrap', { kid: made.kid, wrapped_b64: made.wrapped_b64 })).json;
      assert.equal(same.plaintext_key_b64, made.plaintext_key_b64);
    }
  });

  test('derive is deterministic per label and version, and different for any other', async () => {
    const kid = await kms.create('hmac-sha256');
    const derive = async (label: string, of = kid): Promise<string> =>
      (await kms.post('/derive', { kid: of, label })).json.secret_b64;
    const first = await derive('keys/storage/1');
    assert.equal(Buffer.from(first, 'base64').length, 32);
    assert.equal(await derive('keys/storage/1'), first);
    assert.notEqual(await derive('keys/storage/2'), first);
    await kms.post(`/keys/${path(kid)}/rotate`, {});
    assert.equal(await derive('keys/storage/1'), first);
    assert.notEqual(await derive('keys/storage/1', kid.slice(0, -3)), first);
    assertRefusal(await kms.post('/derive', { kid: await kms.create('ed25519'), label: 'a' }), 400, 'validation');
  });

  test('lists are paginated by name, for one tenant or all', async () => {
    const mine = [
      await kms.create('ed25519', { tenant: 'zoo' }),
      await kms.create('ed25519', { tenant: 'zoo' }),
    ].toSorted();
    const all = (await kms.get('/keys?tenant=zoo')).json;
    assert.deepEqual(
      all.keys.map((key: { kid: string }) => key.kid),
      mine,
    );
    const first = (await kms.get('/keys?tenant=zoo&limit=1')).json;
    assert.equal(first.keys.length, 1);
    const rest = (await kms.get(`/keys?tenant=zoo&limit=1&after=${path(first.next)}`)).json;
    assert.deepEqual([rest.keys[0].kid, rest.next], [mine[1], undefined]);
    assertRefusal(await kms.get('/keys?limit=0'), 400, 'validation');
  });

  test('deleting a version takes two calls with a waiting period, excludes the current one, and can be cancelled', async (t) => {
    await using quick = await startService({ flags: ['--kms.delete_wait=1m'] });
    const v1 = await quick.create('ed25519');
    const old = (await quick.post('/sign', { kid: v1, payload_b3: B3 })).json;
    assertRefusal(await quick.post(`/keys/${path(v1)}/delete`), 409, 'conflict');
    await quick.post(`/keys/${path(v1)}/rotate`, {});
    const begun = await quick.post(`/keys/${path(v1)}/delete`);
    assert.deepEqual([begun.status, begun.json.state], [202, 'pending'], begun.text);
    assertRefusal(await quick.post(`/keys/${path(v1)}/delete`), 409, 'conflict');
    assert.equal((await quick.post(`/keys/${path(v1)}/restore`)).json.state, 'kept');
    assert.ok((await quick.post('/verify', { kid: v1, payload_b3: B3, sigs: old.sigs })).json.ok);
    const again = await quick.post(`/keys/${path(v1)}/delete`);
    t.mock.timers.enable({ apis: ['Date'], now: again.json.deletable_ms });
    const done = await quick.post(`/keys/${path(v1)}/delete`);
    assert.deepEqual([done.status, done.json.state], [200, 'deleted'], done.text);
    const gone = (await quick.post('/verify', { kid: v1, payload_b3: B3, sigs: old.sigs })).json;
    assert.match(gone.details.reason, /deleted/);
    assertRefusal(await quick.post(`/keys/${path(v1)}/restore`), 409, 'conflict');
    assert.deepEqual((await quick.get(`/keys/${path(v1.slice(0, -3))}`)).json.versions, ['#v2']);
  });
});
