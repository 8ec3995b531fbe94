/** Unix sockets and pinned keys: a client with a capability connects to its service or to nothing. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, createPrivateKey, createPublicKey } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdir, readFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { KmsClient, PassportClient, StorageAdmin, StorageClient } from '@ron/client';
import { isPrivate, reach, reachPrivately } from '@ron/client/node';
import { isRonError } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';

const quick = { tries_max: 1, backoff_ms: () => 1 };

const answer: RequestListener = (request, response) => {
  request.resume();
  const text = JSON.stringify({ vkeys: [], volumes: [], ok: true, host: request.headers.host });
  response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': text.length }).end(text);
};

interface Served {
  readonly url: string;
  readonly pin: string;
  readonly sockets: Set<Socket>;
  /** Plaintext bytes that the server received. */
  received: string;
}

async function serveTls(t: TestContext, dir: string, name: string): Promise<Served> {
  const key_file = join(dir, `${name}.key`);
  const cert_file = join(dir, `${name}.pem`);
  const args = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  execFileSync('openssl', [...args, '-subj', `/CN=${name}`, '-keyout', key_file, '-out', cert_file], {
    stdio: 'ignore',
  });
  const [key, cert] = await Promise.all([readFile(key_file), readFile(cert_file)]);
  const spki = createPublicKey(createPrivateKey(key)).export({ type: 'spki', format: 'der' });
  const served: Served = {
    url: '',
    pin: createHash('sha256').update(spki).digest('base64'),
    sockets: new Set(),
    received: '',
  };
  const server = createTlsServer({ key, cert }, (request, response) => {
    served.received += request.rawHeaders.join('\n');
    answer(request, response);
  }).listen(0, '127.0.0.1');
  server.on('secureConnection', (socket) => served.sockets.add(socket));
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return Object.assign(served, { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}` });
}

async function serveUnix(t: TestContext): Promise<{ url: string; sockets: Set<Socket> }> {
  const dir = join(tempDirFor(t), 'run');
  await mkdir(dir, { mode: 0o700 });
  const path = join(dir, 'x.sock');
  const server = createServer(answer).listen(path);
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => sockets.add(socket));
  await once(server, 'listening');
  await chmod(path, 0o600);
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `unix:${path}`, sockets };
}

test('every client works over a Unix socket, and reuses its connection', async (t) => {
  const { url, sockets } = await serveUnix(t);
  const init = { ...reachPrivately(url), capability: 'x', policy: quick };
  const kms = new KmsClient(init);
  for (let call = 0; call < 5; call++) await kms.auditKeys();
  assert.equal(sockets.size, 1);
  await new PassportClient(init).verify({ token: 'x' });
  await new StorageAdmin(init).volumes();
  assert.equal(sockets.size, 1, 'clients share the connections of one reach');
  await new StorageClient(init).stat(`b3:${'0'.repeat(64)}` as never);
  assert.equal(((await (await fetchOf(url)).json()) as { host: string }).host, 'localhost');
});

function fetchOf(url: string): Promise<{ json(): Promise<unknown> }> {
  const { fetch, url: base } = reach(url);
  const { signal } = new AbortController();
  return fetch(new URL('/', base), {
    method: 'GET',
    headers: {},
    signal,
    redirect: 'error',
    cache: 'no-store',
    credentials: 'omit',
  });
}

test('a missing socket is unreachable and names the socket, not a host', async (t) => {
  const path = join(tempDirFor(t), 'gone.sock');
  const kms = new KmsClient({ ...reachPrivately(`unix:${path}`), capability: 'x', policy: quick });
  await assert.rejects(kms.auditKeys(), (error) => isRonError(error, 'unreachable') && error.message.includes(path));
});

test('a capability is not sent over http, nor over https without a pin', () => {
  for (const url of ['http://127.0.0.1:7105', 'https://kms.example', 'HTTP://localhost', 'unix:relative', 'file:/x']) {
    assert.equal(isPrivate(url, undefined), false, url);
    assert.throws(() => reachPrivately(url), /use unix:PATH, or https:\/\/ and the pin/);
  }
  assert.throws(() => reachPrivately('http://127.0.0.1:7105', 'ab'.repeat(32)), /refusing to send a capability/);
  assert.throws(() => reachPrivately('https://kms.example', 'short'), /a pin is the SHA-256/);
});

test('the pinned key is accepted in base64 and hex; connections are reused', async (t) => {
  const server = await serveTls(t, tempDirFor(t), 'kms');
  for (const pin of [server.pin, Buffer.from(server.pin, 'base64').toString('hex')]) {
    const kms = new KmsClient({ ...reachPrivately(server.url, pin), capability: 'secret-token', policy: quick });
    await kms.auditKeys();
    await kms.auditKeys();
  }
  assert.equal(server.sockets.size, 2);
  assert.match(server.received, /secret-token/);
});

test('a server with another key receives no byte of the request', async (t) => {
  const dir = tempDirFor(t);
  const honest = await serveTls(t, dir, 'honest');
  const attacker = await serveTls(t, dir, 'attacker');
  const init = { ...reachPrivately(attacker.url, honest.pin), capability: 'secret-token', policy: quick };
  await assert.rejects(
    new KmsClient(init).auditKeys(),
    (error) => isRonError(error, 'integrity') && /is not the pinned one: nothing was sent/.test(error.message),
  );
  assert.equal(attacker.received, '');
});

test('a server that never completes the handshake is left at the deadline', async (t) => {
  const { createServer: createTcpServer } = await import('node:net');
  const silent = createTcpServer().listen(0, '127.0.0.1');
  await once(silent, 'listening');
  t.after(() => silent.close());
  silent.on('connection', (socket) => t.after(() => socket.destroy()));
  const url = `https://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  const init = { ...reachPrivately(url, 'ab'.repeat(32)), capability: 'x', policy: quick, deadline_ms: 300 };
  const began_ms = performance.now();
  await assert.rejects(new KmsClient(init).auditKeys());
  assert.ok(performance.now() - began_ms < 5000);
});

test('a capability that no header can hold is refused, and the error does not quote it', async () => {
  for (const fetch of [undefined, reach('http://127.0.0.1:1').fetch]) {
    const client = new KmsClient({
      url: 'http://127.0.0.1:1',
      capability: '{\n"kms": "a secret token"}',
      policy: quick,
      ...(fetch !== undefined && { fetch }),
    });
    const refused = await client.auditKeys().then(
      () => assert.fail('it was sent'),
      (error: unknown) => error,
    );
    assert.ok(isRonError(refused, 'validation'));
    assert.doesNotMatch(`${refused.stack}${JSON.stringify(refused.details)}${String(refused.cause)}`, /secret/);
  }
});
