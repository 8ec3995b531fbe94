import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';
import type { Alg } from './algorithms.ts';
import { MemoryBackend } from '../software/memory-backend.ts';
import { requirePublicPart, verifyWith } from './public-keys.ts';

const { signal } = new AbortController();
const isInvalid = (error: unknown): boolean => isRonError(error, 'validation');

test('a signature verifies with the openssl command, from the documented bytes', async (t) => {
  await using backend = new MemoryBackend();
  const { key, public: parts } = await backend.create('ed25519', '', signal);
  const message = Buffer.from(`ron-kms/v1\ntenant/app/ed25519/id#v1\n${'ab'.repeat(32)}\n`);
  const [signed] = await backend.sign(key, message, signal);
  const dir = tempDirFor(t);
  writeFileSync(join(dir, 'public.der'), Buffer.from(parts[0]?.pubkey_b64 ?? '', 'base64'));
  writeFileSync(join(dir, 'message'), message);
  writeFileSync(join(dir, 'signature'), signed?.signature ?? '');
  const check = (): string =>
    execFileSync(
      'openssl',
      'pkeyutl -verify -pubin -inkey public.der -keyform DER -rawin -in message -sigfile signature'.split(' '),
      { cwd: dir, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] },
    );
  assert.match(check(), /Verified Successfully/);
  writeFileSync(join(dir, 'message'), 'something else');
  assert.throws(check);
});

test('signatures made by the platform alone verify here', () => {
  for (const alg of ['ed25519', 'ml-dsa-44', 'ml-dsa-65', 'ml-dsa-87'] as const) {
    const pair = generateKeyPairSync(alg as 'ed25519');
    const pubkey_b64 = pair.publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
    const signature = sign(null, Buffer.from('message'), pair.privateKey);
    assert.equal(verifyWith({ alg, pubkey_b64 }, Buffer.from('message'), signature), true);
    assert.equal(verifyWith({ alg, pubkey_b64 }, Buffer.from('massage'), signature), false);
  }
});

test('a key of another algorithm or encoding, or no key, is refused and never reported as an invalid signature', () => {
  const pair = generateKeyPairSync('ed25519');
  const pubkey_b64 = pair.publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
  requirePublicPart({ alg: 'ed25519', pubkey_b64 });
  const rsa = generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey.export({ type: 'spki', format: 'der' });
  const parts: { alg: Alg; pubkey_b64: string }[] = [
    { alg: 'ml-dsa-65', pubkey_b64 },
    { alg: 'x-wing', pubkey_b64 },
    { alg: 'hybrid', pubkey_b64 },
    { alg: 'ed25519', pubkey_b64: rsa.toString('base64') },
    { alg: 'ed25519', pubkey_b64: `${pubkey_b64} ` },
    { alg: 'ed25519', pubkey_b64: Buffer.concat([Buffer.from(pubkey_b64, 'base64'), Buffer.of(0)]).toString('base64') },
    { alg: 'ed25519', pubkey_b64: 'A'.repeat(100_000) },
    { alg: 'ed25519', pubkey_b64: '' },
  ];
  for (const part of parts) assert.throws(() => requirePublicPart(part), isInvalid, JSON.stringify(part).slice(0, 80));
  assert.throws(() => verifyWith(parts[0] as never, Buffer.alloc(1), Buffer.alloc(64)), isInvalid);
});

test('arbitrary text as a public key fails with validation', () => {
  const part = fc.record({
    alg: fc.constantFrom<Alg>('ed25519', 'ml-dsa-44', 'x-wing'),
    pubkey_b64: fc.oneof(
      fc.string(),
      fc.base64String(),
      fc.uint8Array().map((bytes) => Buffer.from(bytes).toString('base64')),
    ),
  });
  fc.assert(fc.property(part, (each) => assert.throws(() => requirePublicPart(each), isInvalid)));
});

test('the public key of an X-Wing handle is a valid X-Wing key', async () => {
  await using backend = new MemoryBackend();
  const { public: parts } = await backend.create('x-wing', '', signal);
  for (const part of parts) requirePublicPart(part);
  assert.throws(() =>
    createPublicKey({ key: Buffer.from(parts[0]?.pubkey_b64 ?? '', 'base64'), format: 'der', type: 'spki' }),
  );
});
