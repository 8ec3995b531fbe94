import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { generateKeyPairSync, sign, webcrypto, type KeyObject } from 'node:crypto';
import { chmod, chown, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { signedText, type PublicPart } from '@ron/proto';
import { tempDir } from '@ron/testkit';
import { CliError } from '../exits.ts';
import { verifyOffline } from './offline.ts';
import { readPublicKeys, toJwk, toPem, type SigningAlg, type VerificationKey } from './public-keys.ts';
import { readSignature, type SignatureFile } from './signature-file.ts';
import { covers, readTrust } from './trust-file.ts';

const ALGS: readonly SigningAlg[] = ['ed25519', 'ml-dsa-44', 'ml-dsa-65', 'ml-dsa-87'];
const HASH = 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262';
const kidOf = (alg: string, tenant = 'acme'): string => `${tenant}/docs/${alg}/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10#v1`;

interface Pair extends VerificationKey {
  readonly privateKey: KeyObject;
  readonly part: PublicPart;
}

function pairOf(alg: SigningAlg): Pair {
  // The overloads do not know all algorithms together.
  const { publicKey, privateKey } = generateKeyPairSync(alg as 'ed25519');
  const pubkey_b64 = publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
  return { alg, key: publicKey, privateKey, part: { alg, pubkey_b64 } };
}

const pairs = Object.fromEntries(ALGS.map((alg) => [alg, pairOf(alg)])) as Record<SigningAlg, Pair>;
const [ED, PQ] = [pairs.ed25519, pairs['ml-dsa-65']];

function signed(kid: string, by: readonly Pair[]): SignatureFile {
  const sigs = by.map(({ alg, privateKey }) => {
    const signature = sign(null, Buffer.from(signedText(kid, HASH)), privateKey);
    return { kid, alg, signature_b64: signature.toString('base64') };
  });
  return { kid, payload_b3: HASH, sigs };
}

const isData = (error: unknown): boolean => error instanceof CliError && error.exit === 'data';

test('a signature of each algorithm verifies with its key and with no other', () => {
  for (const alg of ALGS) {
    const file = signed(kidOf(alg), [pairs[alg]]);
    assert.deepEqual(verifyOffline(file, [pairs[alg]]), { valid: [alg], reason: undefined });
    assert.match(verifyOffline(file, [pairOf(alg)]).reason!, /no valid signature/);
    assert.match(verifyOffline({ ...file, payload_b3: '0'.repeat(64) }, [pairs[alg]]).reason!, /no valid signature/);
    assert.match(verifyOffline({ ...file, kid: kidOf(alg, 'zoo') }, [pairs[alg]]).reason!, /no valid signature/);
  }
});

test('the algorithm that a file claims does not select the key: each confusion is refused', () => {
  const file = signed(kidOf('ed25519'), [ED]);
  for (const alg of ALGS) {
    const sigs = file.sigs.map((sig) => ({ ...sig, alg }));
    const { reason } = verifyOffline({ ...file, sigs }, [ED]);
    assert.equal(reason === undefined, alg === 'ed25519', alg);
    if (alg !== 'ed25519') assert.match(verifyOffline({ ...file, sigs }, [pairs[alg]]).reason!, /no valid signature/);
  }
});

test('a hybrid key needs both signatures, unless the mode says otherwise', () => {
  const both = signed(kidOf('hybrid'), [ED, PQ]);
  const reasons = (file: SignatureFile, keys: readonly VerificationKey[]) =>
    (['and', 'pq_only', 'or'] as const).map((mode) => verifyOffline(file, keys, mode).reason === undefined);
  assert.deepEqual(reasons(both, [ED, PQ]), [true, true, true]);
  assert.equal(verifyOffline(both, [ED, PQ]).reason, undefined);
  const [first, second] = [
    { ...both, sigs: both.sigs.slice(0, 1) },
    { ...both, sigs: both.sigs.slice(1) },
  ];
  assert.deepEqual(reasons(first, [ED, PQ]), [false, false, true]);
  assert.deepEqual(reasons(second, [ED, PQ]), [false, true, true]);
  assert.deepEqual(reasons(both, [ED]), [false, false, true], 'one of two public keys is not enough');
  assert.deepEqual(reasons(both, [PQ]), [false, true, true]);
  assert.deepEqual(reasons(both, []), [false, false, false]);
  // An attacker that breaks Ed25519 cannot pretend that the key was never hybrid: both keys were given.
  assert.deepEqual(reasons(signed(kidOf('ed25519'), [ED]), [ED, PQ]), [false, false, true]);
});

test('a truncated or flipped signature is invalid and never an error', () => {
  for (const alg of ALGS) {
    const file = signed(kidOf(alg), [pairs[alg]]);
    const bytes = Buffer.from(file.sigs[0]!.signature_b64, 'base64');
    for (const length of [1, 32, bytes.length - 1, bytes.length + 1]) {
      const cut = Buffer.alloc(length);
      bytes.copy(cut);
      const sigs = [{ ...file.sigs[0]!, signature_b64: cut.toString('base64') }];
      assert.match(verifyOffline({ ...file, sigs }, [pairs[alg]]).reason!, /no valid signature/);
    }
  }
});

test('a signature file names one key version, and each algorithm once', async () => {
  await using dir = await tempDir();
  const path = join(dir.path, 'x.sig');
  const good = signed(kidOf('hybrid'), [ED, PQ]);
  const read = async (value: unknown): Promise<SignatureFile> => {
    await writeFile(path, typeof value === 'string' ? value : JSON.stringify(value));
    return await readSignature(path);
  };
  assert.deepEqual(await read({ ...good, log_index: 7 }), good);
  const [ed, pq] = good.sigs as [SignatureFile['sigs'][0], SignatureFile['sigs'][0]];
  for (const bad of [
    '',
    'null',
    '[]',
    JSON.stringify(good).slice(0, -10),
    { ...good, sigs: [] },
    { ...good, sigs: [null] },
    { ...good, sigs: [ed, { ...pq, kid: kidOf('hybrid', 'zoo') }] },
    { ...good, sigs: [ed, { ...ed }] },
    { ...good, sigs: [{ ...ed, signature_b64: 'not base64' }] },
    { ...good, sigs: [{ ...ed, signature_b64: '' }] },
    { ...good, sigs: Array.from({ length: 9 }, (_, at) => ({ ...ed, alg: `a${at}` })) },
    { ...good, kid: good.kid.slice(0, -3) },
    { ...good, kid: `${good.kid}\n` },
    { ...good, kid: '../x' },
    { ...good, payload_b3: 'xyz' },
    'x'.repeat(300 * 1024),
  ])
    await assert.rejects(read(bad), isData, JSON.stringify(bad).slice(0, 200));
  await assert.rejects(readSignature('/dev/zero'), isData);
});

test('public keys are read from PEM, JWK and JWK sets; private keys and other files are refused', async () => {
  await using dir = await tempDir();
  const path = join(dir.path, 'key');
  const read = async (text: string): Promise<SigningAlg[]> => {
    await writeFile(path, text);
    return (await readPublicKeys([path])).map(({ alg }) => alg);
  };
  for (const alg of ALGS) {
    const { part } = pairs[alg];
    assert.deepEqual(await read(toPem([part])), [alg]);
    assert.deepEqual(await read(JSON.stringify(toJwk(kidOf(alg), [part]))), [alg]);
  }
  const both = [ED.part, PQ.part];
  assert.deepEqual(await read(toPem(both)), ['ed25519', 'ml-dsa-65']);
  assert.deepEqual(await read(JSON.stringify(toJwk(kidOf('hybrid'), both))), ['ed25519', 'ml-dsa-65']);
  await writeFile(`${path}.second`, toPem([PQ.part]));
  await writeFile(path, toPem([ED.part]));
  const two = await readPublicKeys([path, `${path}.second`]);
  assert.equal(verifyOffline(signed(kidOf('hybrid'), [ED, PQ]), two).reason, undefined, 'a hybrid key in two files');
  const pem = (key: KeyObject): string => key.export({ type: 'pkcs8', format: 'pem' });
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
  for (const bad of [
    '',
    'hello',
    '{',
    '{}',
    '{"keys":[null]}',
    toPem([ED.part, ED.part]),
    toPem([{ alg: 'ed25519', pubkey_b64: ED.part.pubkey_b64.slice(0, 40) }]),
    rsa.publicKey.export({ type: 'spki', format: 'pem' }),
    JSON.stringify({ ...ED.key.export({ format: 'jwk' }), crv: 'X25519' }),
  ])
    await assert.rejects(read(bad), isData, bad.slice(0, 100));
  for (const secret of [
    pem(ED.privateKey),
    `${toPem([ED.part])}\n${pem(PQ.privateKey)}`,
    JSON.stringify(ED.privateKey.export({ format: 'jwk' })),
    JSON.stringify(PQ.privateKey.export({ format: 'jwk' })),
  ])
    await assert.rejects(read(secret), /contains a private key/);
});

test('an exported JWK imports into WebCrypto, and an exported PEM into openssl', async (t) => {
  const message = Buffer.from(signedText(kidOf('ed25519'), HASH));
  for (const alg of ALGS) {
    const jwk = toJwk(kidOf(alg), [pairs[alg].part]) as webcrypto.JsonWebKey;
    const name = alg === 'ed25519' ? 'Ed25519' : alg.toUpperCase();
    const key = await webcrypto.subtle.importKey('jwk', jwk, { name }, true, ['verify']);
    const signature = sign(null, message, pairs[alg].privateKey);
    assert.ok(await webcrypto.subtle.verify({ name }, key, signature, message));
  }
  await using dir = await tempDir();
  const at = (name: string): string => join(dir.path, name);
  await writeFile(at('key.pem'), `${toPem([ED.part])}\n`);
  await writeFile(at('message'), message);
  await writeFile(at('sig'), sign(null, message, ED.privateKey));
  const args = ['pkeyutl', '-verify', '-pubin', '-inkey', at('key.pem'), '-rawin', '-in', at('message')];
  try {
    execFileSync('openssl', ['version'], { stdio: 'pipe' });
  } catch {
    return t.skip('the openssl command is not here: install openssl');
  }
  assert.match(execFileSync('openssl', [...args, '-sigfile', at('sig')]).toString(), /Verified Successfully/);
});

test('a trust file: kids, prefixes and public keys; a pattern covers no neighbour', async () => {
  await using dir = await tempDir();
  const path = join(dir.path, 'trust');
  const kid = kidOf('ed25519');
  await writeFile(path, `# ours\n\nacme/docs/\r\n  ${kid} ${ED.part.pubkey_b64}\n${kid.slice(0, -3)}\n`);
  const lines = (await readTrust(path, false))!;
  assert.deepEqual(
    lines.map(({ pattern, keys }) => [pattern, keys.map(({ alg }) => alg)]),
    [
      ['acme/docs/', []],
      [kid, ['ed25519']],
      [kid.slice(0, -3), []],
    ],
  );
  assert.ok(covers('acme/docs/', kid) && covers('acme/', kid) && covers(kid, kid) && covers(kid.slice(0, -3), kid));
  for (const other of ['acme/docs2/', 'acm/', 'zoo/', `${kid}0`, kid.slice(0, -4), kid.slice(0, -1), 'acme', ''])
    assert.ok(!covers(other, kid), other);
  assert.ok(!covers(kid, `${kid}0`), 'version 1 is not version 10');
  for (const bad of [
    'acme',
    'acme/docs',
    '/',
    '*',
    `${kid} zzz`,
    `${kid} ${ED.part.pubkey_b64} ${ED.part.pubkey_b64}`,
  ]) {
    await writeFile(path, bad);
    await assert.rejects(readTrust(path, false), isData, bad);
  }
  await writeFile(path, 'acme/\n');
  await chmod(path, 0o666);
  await assert.rejects(readTrust(path, false), (error) => error instanceof CliError && error.exit === 'permission');
  if (process.geteuid?.() === 0) {
    await chmod(path, 0o600);
    await chown(path, 65_534, 65_534);
    await assert.rejects(readTrust(path, false), /belongs to another user/);
  }
  assert.equal(await readTrust(join(dir.path, 'none'), true), undefined);
  await assert.rejects(readTrust(join(dir.path, 'none'), false), CliError);
});
