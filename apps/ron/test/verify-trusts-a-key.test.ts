/** `ron verify` trusts the key that the user names, not the one that a signature names. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { command, inTemporaryDir, up } from './support.ts';

test('a file re-signed by the key of another tenant is not valid, with kms, with a trust file and offline', async (t) => {
  const work = await inTemporaryDir(t);
  const dir = join(work, 'node');
  const node = await up(t, dir);
  const at = (name: string): string => join(work, name);
  const run = (...args: string[]) => command([...args, '--dir', dir]);
  await writeFile(at('report.txt'), 'all is well\n');
  const [acme, zoo] = await Promise.all(
    ['acme', 'zoo'].map(async (tenant) => (await run('keys', 'create', '--tenant', tenant)).text.trim()),
  );
  assert.equal((await run('sign', 'report.txt', '--key', acme!)).code, 0);
  assert.equal((await run('sign', 'report.txt', '--key', zoo!, '-o', 'forged.sig')).code, 0);
  assert.equal((await run('keys', 'export', acme!, '-o', 'acme.pem')).code, 0);
  assert.equal((await run('keys', 'export', acme!, '--format', 'jwk', '-o', 'acme.jwk')).code, 0);
  assert.equal((await run('keys', 'export', acme!, '--format', 'trust', '-o', 'signers')).code, 0);
  await writeFile(at('prefixes'), 'acme/\n');

  const undecided = await run('verify', 'report.txt', '-s', 'forged.sig');
  assert.deepEqual([undecided.code, undecided.text], [64, '']);
  assert.match(undecided.stderr, /--key, --tenant, --public or --trust\. Not verified: the signature names zoo\//);
  const ways = [
    ['--key', acme!],
    ['--key', acme!.slice(0, -3)],
    ['--tenant', 'acme'],
    ['--trust', 'prefixes'],
    ['--trust', 'signers'],
    ['--public', 'acme.pem'],
    ['--public', 'acme.jwk'],
    ['--public', 'acme.pem', '--tenant', 'acme'],
  ];
  for (const way of ways) {
    const good = await run('verify', 'report.txt', ...way);
    assert.equal(good.code, 0, `${way.join(' ')}: ${good.stderr}`);
    assert.match(good.text, /^valid: .*\(ed25519, ml-dsa-65\)/);
    const forged = await run('verify', 'report.txt', '-s', 'forged.sig', ...way);
    assert.deepEqual([forged.code, forged.text], [65, ''], way.join(' '));
  }

  // The forger writes the trusted name over its own signature.
  const forged = (await readFile(at('forged.sig'), 'utf8')).replaceAll(zoo!, acme!);
  await writeFile(at('renamed.sig'), forged);
  for (const way of ways) {
    const renamed = await run('verify', 'report.txt', '-s', 'renamed.sig', ...way);
    assert.deepEqual([renamed.code, renamed.text], [65, ''], way.join(' '));
  }

  // Offline verification needs neither the node nor its directory.
  node.process.kill('SIGINT');
  await node.process.ended;
  const offline = await command(['verify', 'report.txt', '--public', 'acme.pem']);
  assert.match(offline.text, /^valid: signed by the key in acme\.pem \(ed25519, ml-dsa-65\) under the name acme\//);
  const byEnvironment = await command(['verify', 'report.txt'], { RON_TRUST: at('signers') });
  assert.equal(byEnvironment.text, `valid: ${acme} (ed25519, ml-dsa-65)\n`, byEnvironment.stderr);
  // A directory with files to verify does not bring its own list.
  await mkdir(at('.ron'));
  await copyFile(at('signers'), at('.ron/trust'));
  assert.equal((await command(['verify', 'report.txt'])).code, 64);
  await copyFile(at('signers'), join(dir, 'trust'));
  assert.equal((await run('verify', 'report.txt')).code, 0, 'the trust file of the named directory is the default');
  assert.equal((await run('verify', 'report.txt', '-s', 'forged.sig')).code, 65);
});

test('the answer of a server that is not known to be kms is not believed', async (t) => {
  const work = await inTemporaryDir(t);
  const kid = 'acme/docs/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10#v1';
  const payload_b3 = Buffer.from(blake3(Buffer.from('all is well\n'))).toString('hex');
  const sigs = [{ kid, alg: 'ed25519', signature_b64: 'AAAA' }];
  await writeFile(join(work, 'report.txt'), 'all is well\n');
  await writeFile(join(work, 'report.txt.sig'), JSON.stringify({ kid, payload_b3, sigs }));
  const { publicKey } = generateKeyPairSync('ed25519');
  const pubkey_b64 = publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
  // Another user took the port of a kms that does not run, and says yes to everything.
  const server = createServer((request, response) => {
    const isVerify = request.url!.endsWith('/verify');
    const details = { checked: [{ alg: 'ed25519', ok: true }], satisfied_mode: 'or' };
    const key = { kid, alg: 'ed25519', public: { alg: 'ed25519', pubkey_b64 }, versions: ['#v1'], state: 'enabled' };
    const text = JSON.stringify(isVerify ? { ok: true, details } : key);
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length }).end(text);
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  for (const args of [
    ['verify', 'report.txt', '--tenant', 'acme'],
    ['verify', 'report.txt', '--key', kid],
    ['keys', 'export', kid],
    ['keys', 'show', kid],
  ]) {
    const { code, text, stderr } = await command([...args, '--url', url]);
    assert.deepEqual([code, text], [77, ''], args.join(' '));
    assert.match(stderr, /answered without a capability/);
  }
});
