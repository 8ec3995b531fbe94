import assert from 'node:assert/strict';
import { createHash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { createServer, type TLSSocket } from 'node:tls';
import type { EgressInit } from '../src/index.ts';
import { ca, clientOf, get, HOST, hostile, issue, ok, quiet, refused, selfSigned, text } from './support.ts';
import type { KeyPair } from '../src/testing/index.ts';

const hello = (socket: { write(text: string): unknown }): unknown => socket.write(ok());

async function attempt(tls: KeyPair, init: Partial<EgressInit> = {}, host = HOST): Promise<string> {
  await using server = await hostile(hello, { tls });
  await using egress = clientOf(server, init);
  try {
    return text((await get(egress, `https://${host}:${server.port}/`)).body);
  } finally {
    await quiet(egress);
    if (egress.outcomes.ok === 0) assert.equal(server.requests.length, 0, 'no request was sent');
  }
}

const INVALID: Readonly<Record<string, readonly [tls: () => KeyPair, reason: string]>> = {
  'another name': [() => issue({ names: 'DNS:other.test' }), 'ERR_TLS_CERT_ALTNAME_INVALID'],
  'the dialled address only': [() => issue({ names: 'IP:127.0.0.1' }), 'ERR_TLS_CERT_ALTNAME_INVALID'],
  'a name below': [() => issue({ names: `DNS:*.${HOST}` }), 'ERR_TLS_CERT_ALTNAME_INVALID'],
  'a time that has passed': [() => issue({ names: `DNS:${HOST}`, days: -1 }), 'CERT_HAS_EXPIRED'],
  'its own signature': [() => selfSigned(`DNS:${HOST}`), 'DEPTH_ZERO_SELF_SIGNED_CERT'],
};

for (const [name, [tls, reason]] of Object.entries(INVALID)) {
  test(`a certificate with ${name} is refused before a request is sent`, async () => {
    await refused(attempt(tls()), 'bad_gateway', reason);
  });
}

test('NODE_TLS_REJECT_UNAUTHORIZED has no effect', async () => {
  process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
  try {
    for (const [tls, reason] of Object.values(INVALID)) await refused(attempt(tls()), 'bad_gateway', reason);
  } finally {
    delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
  }
});

test('a private CA is trusted beside the system or instead of it, never by default', async () => {
  const tls = issue({ names: `DNS:${HOST}` });
  assert.equal(await attempt(tls, { ca: { pem: ca, mode: 'add' } }), 'hello');
  assert.equal(await attempt(tls, { ca: { pem: ca, mode: 'only' } }), 'hello');
  await using server = await hostile(hello, { tls });
  const init = { name: 'test', ports: [server.port], networks: ['127.0.0.1/32'], lookup: async () => ['127.0.0.1'] };
  const { Egress } = await import('../src/index.ts');
  await using egress = new Egress(init);
  await refused(get(egress, server.url), 'bad_gateway', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE');
  for (const pem of ['', 'junk', '-----BEGIN CERTIFICATE-----\njunk\n-----END CERTIFICATE-----\n'])
    assert.throws(() => new Egress({ ...init, ca: { pem, mode: 'only' } }), { code: 'validation' });
});

test('an address in the URL needs a certificate for that address', async () => {
  assert.equal(await attempt(issue({ names: 'IP:127.0.0.1' }), {}, '127.0.0.1'), 'hello');
  await refused(attempt(issue({ names: `DNS:${HOST}` }), {}, '127.0.0.1'), 'bad_gateway');
});

test('SNI is the name of the URL, and absent when that is an address', async () => {
  const asked: unknown[] = [];
  const onConnection = (socket: object): unknown => asked.push((socket as TLSSocket).servername);
  await using server = await hostile(hello, { onConnection });
  await using egress = clientOf(server);
  for (const host of [HOST, '127.0.0.1']) await get(egress, `https://${host}:${server.port}/`);
  assert.deepEqual(asked, [HOST, false]);
});

test('a pinned key is required as well, for its host only', async () => {
  const tls = issue({ names: `DNS:${HOST}` });
  const spki = new X509Certificate(tls.cert).publicKey.export({ type: 'spki', format: 'der' });
  const pin = createHash('sha256').update(spki).digest('base64');
  const other = createHash('sha256').update('other').digest('base64');
  assert.equal(await attempt(tls, { pins: { [HOST]: [other, pin] } }), 'hello');
  assert.equal(await attempt(tls, { pins: { 'other.test': [other] } }), 'hello');
  await refused(attempt(tls, { pins: { [HOST]: [other] } }), 'bad_gateway', 'certificate_pin');
  await refused(attempt(selfSigned(`DNS:${HOST}`), { pins: { [HOST]: [pin] } }), 'bad_gateway');
  await assert.rejects(attempt(tls, { pins: { [HOST]: ['not a pin'] } }), { code: 'validation' });
});

test('a pin holds for every spelling of its host, and an entry that is not a host is refused', async () => {
  const tls = issue({ names: `DNS:${HOST},DNS:xn--bcher-kva.test,IP:127.0.0.1` });
  const wrong = createHash('sha256').update('wrong').digest('base64');
  for (const [host, url] of [
    ['Origin.test', HOST],
    ['ORIGIN.TEST', HOST],
    ['%6frigin.test', HOST],
    [HOST, 'ORIGIN.test'],
    ['bücher.test', 'xn--bcher-kva.test'],
    ['xn--bcher-kva.test', 'BÜCHER.test'],
    ['127.1', '127.0.0.1'],
    ['127.0.0.1', '0x7f000001'],
  ] as const)
    await refused(attempt(tls, { pins: { [host]: [wrong] } }, url), 'bad_gateway', 'certificate_pin');
  const notHosts = [
    '',
    `${HOST}.`,
    `${HOST}:443`,
    `https://${HOST}`,
    `//${HOST}`,
    `${HOST}/`,
    `u@${HOST}`,
    `*.${HOST}`,
  ];
  for (const host of [...notHosts, `${HOST}?`, `${HOST}#`, `${HOST} `, `a\\${HOST}`, '[::1]:443', '[::1', 'fe80::1%lo'])
    assert.throws(() => clientOf({ port: 1 }, { pins: { [host]: [wrong] } }), { code: 'validation' }, host);
  for (const pair of [
    [HOST, 'Origin.test'],
    ['::1', '[0::1]'],
  ])
    assert.throws(() => clientOf({ port: 1 }, { pins: Object.fromEntries(pair.map((host) => [host, [wrong]])) }), {
      code: 'validation',
    });
});

test('a pinned host is never reached over plain HTTP', async () => {
  await using server = await hostile(hello, { tls: 'plain' });
  const pins = { 'Origin.test': [createHash('sha256').update('any').digest('base64')] };
  await using egress = clientOf(server, { schemes: ['http', 'https'], pins });
  await refused(get(egress, server.url), 'reject_policy', 'plain_http');
  assert.equal(server.accepted(), 0);
});

test('TLS below 1.2 is refused', async () => {
  const server = createServer({
    ...issue({ names: `DNS:${HOST}` }),
    minVersion: 'TLSv1',
    maxVersion: 'TLSv1.1',
    ciphers: 'DEFAULT@SECLEVEL=0',
  });
  server.on('tlsClientError', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await using egress = clientOf({ port });
  await refused(get(egress, `https://${HOST}:${port}/`), 'bad_gateway', 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION');
  server.close();
});

test('bytes that are not TLS are refused', async () => {
  await using server = await hostile(hello, {
    tls: 'plain',
    onConnection: (socket) => void socket.write('HTTP/1.1 200 OK\r\n\r\n'),
  });
  await using egress = clientOf(server);
  await refused(get(egress, `https://${HOST}:${server.port}/`), 'bad_gateway', 'ERR_SSL_WRONG_VERSION_NUMBER');
});
