/** A kms that misbehaves. The tests of `ron` use the real one. */
import assert from 'node:assert/strict';
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { createServer, type IncomingMessage, type ServerResponse } from '@ron/kernel/http';
import { loadConfig } from '@ron/config';
import { realFileSystem as fs } from '@ron/log';
import { tempDirFor } from '@ron/testkit';
import { authorizationFrom } from '@ron/testkit/service';
import { schema } from '../config.ts';
import { kmsKey } from './kms-key.ts';

const { signal } = new AbortController();
const spkiOf = (key: KeyObject): string => key.export({ type: 'spki', format: 'der' }).toString('base64');

/** Answers at a socket: each path with the result of its function, or an error. */
async function setUp(t: TestContext) {
  const dir = tempDirFor(t);
  const log_dir = join(dir, 'fills');
  await mkdir(log_dir);
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const kms = { signer: privateKey, pubkey_b64: spkiOf(publicKey), requests: [] as { path: string; body: never }[] };
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(parts).toString()) as never;
      kms.requests.push({ path: request.url!, body });
      const { message_b64 = '' } = body as { message_b64?: string };
      const made = {
        kid: 'edge/raw/ed25519/1#v1',
        alg: 'ed25519',
        public: { alg: 'ed25519', pubkey_b64: kms.pubkey_b64 },
      };
      const signature_b64 = sign(null, Buffer.from(message_b64, 'base64'), kms.signer).toString('base64');
      const signed = { kid: made.kid, sigs: [{ kid: made.kid, alg: 'ed25519', signature_b64 }] };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(request.url!.endsWith('/keys') ? made : signed));
    });
  });
  const socket = join(dir, 'kms.sock');
  server.listen(socket);
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { authorization } = await authorizationFrom(join(dir, 'keys'), 'kms');
  const capability_file = join(dir, 'kms.cap');
  await writeFile(capability_file, authorization.replace('Bearer ', ''), { mode: 0o600 });
  const source = kmsKey({ url: `unix:${socket}`, pin: undefined, capability_file, fs, dir: log_dir });
  return { kms, source, file: join(log_dir, 'kms-key') };
}

test('the key is created once, for the tenant edge, and its file serves later starts', async (t) => {
  const { kms, source, file } = await setUp(t);
  assert.equal(await source.load(), undefined);
  const made = await source.create(signal);
  assert.deepEqual(kms.requests[0]?.body, {
    tenant: 'edge',
    purpose: 'raw',
    alg: 'ed25519',
    policy: { rotate: false },
    op_id: 'edge-fill-log',
  });
  const loaded = await source.load();
  assert.deepEqual(loaded?.spki, made.spki);
  assert.equal((await loaded.sign(Buffer.from('x'), signal)).length, 64);
  assert.deepEqual(
    kms.requests.map(({ path }) => path),
    ['/v1/kms/keys', '/v1/kms/sign'],
  );
  assert.doesNotMatch(await readFile(file, 'utf8'), /Bearer|private/);
});

test('a signature of another key, a malformed key and a damaged file are refused', async (t) => {
  const { kms, source, file } = await setUp(t);
  kms.pubkey_b64 = 'AAAA';
  await assert.rejects(source.create(signal), { code: 'integrity' });
  assert.equal(await source.load(), undefined, 'nothing is kept');
  kms.pubkey_b64 = spkiOf(generateKeyPairSync('ed25519').publicKey);
  const key = await source.create(signal);
  await assert.rejects(key.sign(Buffer.from('x'), signal), { code: 'integrity' });
  await writeFile(file, '{"kid":1}');
  await assert.rejects(source.load(), { code: 'audit_integrity' });
});

test('a URL at which another user could listen is refused', () => {
  const init = { pin: undefined, capability_file: '/none', fs, dir: '/none' };
  assert.throws(() => kmsKey({ ...init, url: 'http://127.0.0.1:7105' }), { code: 'validation' });
});

test('the configuration refuses such a URL, too', () => {
  const flags = ['--data_dir=/none', '--edge.kms_capability_file=/none', '--edge.kms_url=http://127.0.0.1:7105'];
  assert.throws(() => loadConfig({ schema, flags }), /another user could receive the capability/);
});
