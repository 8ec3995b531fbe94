import assert from 'node:assert/strict';
import { createPublicKey, verify } from 'node:crypto';
import { test } from 'node:test';
import { KmsClient } from '@ron/client';
import type { KeyInfo } from '@ron/proto';
import { isRonError } from '@ron/kernel';
import { startKms } from '@ron/testkit/service';

const B3 = 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262';

test('the client covers every operation of the service', async (t) => {
  const { url, token } = await startKms(t);
  const client = new KmsClient({ url, capability: token });
  const made = await client.createKey({ tenant: 'acme', purpose: 'docs', alg: 'ed25519' });
  const signed = await client.sign({ kid: made.kid, payload_b3: B3 }, { wait: 'checkpoint' });
  const key = createPublicKey({ key: Buffer.from(made.public.pubkey_b64!, 'base64'), format: 'der', type: 'spki' });
  const message = Buffer.from(`ron-kms/v1\n${made.kid}\n${B3}\n`);
  assert.ok(verify(null, message, key, Buffer.from(signed.sigs[0]!.signature_b64, 'base64')));
  assert.equal(signed.proof?.log_index, signed.log_index);
  assert.equal((await client.proof(signed.log_index!)).entry_b64, signed.proof?.entry_b64);
  assert.ok((await client.verify({ kid: made.kid, payload_b3: B3, sigs: signed.sigs })).ok);
  const many = await client.signMany([
    { kid: made.kid, payload_b3: B3 },
    { kid: made.kid, payload_b3: B3 },
  ]);
  assert.equal(many.length, 2);

  const rotated = await client.rotateKey(made.kid);
  assert.equal(rotated.previous, made.kid);
  assert.deepEqual((await client.key(rotated.kid)).versions, ['#v1', '#v2']);
  const raw = await client.importKey({ tenant: 'acme', alg: 'ed25519', pubkey_b64: made.public.pubkey_b64! });
  const listed: KeyInfo[] = [];
  for await (const each of client.keys({ tenant: 'acme' })) listed.push(each);
  assert.deepEqual(listed.map(({ kid }) => kid).toSorted(), [rotated.kid, raw.kid].toSorted());

  const wrapping = (await client.createKey({ tenant: 'acme', purpose: 'docs', alg: 'x-wing' })).kid;
  const aad = new TextEncoder().encode('object 1');
  const wrapped = await client.wrap(wrapping, Uint8Array.of(1, 2, 255), aad);
  assert.deepEqual(await client.unwrap(wrapped.kid, wrapped.wrapped_b64, aad), Uint8Array.of(1, 2, 255));
  const data = await client.dataKey(wrapping);
  assert.deepEqual(await client.unwrap(data.kid, data.wrapped_b64), data.plaintext);
  const secret = (await client.createKey({ tenant: 'acme', purpose: 'docs', alg: 'hmac-sha256' })).kid;
  assert.equal((await client.derive(secret, 'a/b')).length, 32);
  assert.equal((await client.auditKeys()).vkeys.length, 2);
  await assert.rejects(client.key('acme/docs/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10'), (error) =>
    isRonError(error, 'not_found'),
  );
});

test('a key is created once even if the response is lost', async (t) => {
  const { url, token } = await startKms(t);
  let lost = 0;
  const client = new KmsClient({
    url,
    capability: token,
    fetch: async (...args) => {
      const response = await fetch(...args);
      // The first response of each kind never arrives.
      if (lost < 1) {
        lost += 1;
        throw new TypeError('the connection broke off');
      }
      return response;
    },
  });
  const made = await client.createKey({ tenant: 'acme', purpose: 'docs', alg: 'ed25519' });
  assert.equal(lost, 1);
  const kids: string[] = [];
  for await (const { kid } of client.keys()) kids.push(kid);
  assert.deepEqual(kids, [made.kid]);
});
