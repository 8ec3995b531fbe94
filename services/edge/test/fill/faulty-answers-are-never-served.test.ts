import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { after, test } from 'node:test';
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { eventually } from '@ron/testkit';
import {
  answer,
  authority,
  FRESH,
  HOST,
  originOf,
  refused,
  removeFiles,
  reset,
  startFilling,
  statusAnswer,
} from './support.ts';

after(removeFiles);

interface Fault {
  readonly name: string;
  readonly send: (socket: Socket) => void;
  readonly status: number;
  readonly code: string;
  readonly reason?: string;
}

const MIB = 1024 * 1024;
const bad = (name: string, send: Fault['send'] | string): Fault => ({
  name,
  send: typeof send === 'string' ? (socket) => void socket.write(send) : send,
  status: 502,
  code: 'bad_gateway',
});
const etagInvalid = (name: string, ...headers: string[]): Fault => ({
  ...bad(name, answer('tile', FRESH, ...headers)),
  reason: 'etag_invalid',
});
const tooLarge = (name: string, send: Fault['send']): Fault => ({
  name,
  send,
  status: 413,
  code: 'payload_too_large',
  reason: 'body_cap',
});
const timeout = (name: string, send: Fault['send']): Fault => ({
  name,
  send,
  status: 504,
  code: 'timeout',
  reason: 'timeout',
});

function encoded(coding: string, bytes: Buffer): Fault['send'] {
  const head = answer('', FRESH, `content-encoding: ${coding}`, `content-length: ${bytes.length}`);
  return (socket) => {
    socket.write(head);
    socket.write(bytes);
  };
}

const bomb = (coding: string, compress: (bytes: Buffer) => Buffer): Fault => ({
  name: `a bomb in ${coding}`,
  send: encoded(coding, compress(Buffer.alloc(4 * MIB))),
  status: 413,
  code: 'decompress_cap',
  reason: 'decompress_cap',
});

function endless(socket: Socket): void {
  const more = (): void => {
    while (!socket.destroyed && socket.write(`4000\r\n${'a'.repeat(0x4000)}\r\n`));
  };
  socket.write(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: image/png\r\netag: "1"\r\n\r\n`);
  socket.on('drain', more);
  more();
}

function interimFlood(socket: Socket): void {
  for (let at = 0; at < 1000 && !socket.destroyed; at += 1) socket.write('HTTP/1.1 103 Early Hints\r\n\r\n');
}

const FAULTS: readonly Fault[] = [
  bad('a reset before the answer', (socket) => void reset(socket)),
  bad('a reset in the headers', (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-', () => reset(socket))),
  bad('a reset after the headers', (socket) => socket.write(answer('', 'content-length: 4'), () => reset(socket))),
  bad('a reset in the body', (socket) => socket.write(answer('ti', 'content-length: 4'), () => reset(socket))),
  bad('a truncated body', (socket) => socket.end(answer('ti', 'content-length: 4'))),
  bad('a truncated chunked body', (socket) =>
    socket.end(
      'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: image/png\r\netag: "1"\r\n\r\n4\r\ntile\r\n',
    ),
  ),
  bad('a body without a length', (socket) =>
    socket.end('HTTP/1.1 200 OK\r\ncontent-type: image/png\r\netag: "1"\r\nconnection: close\r\n\r\ntile'),
  ),
  bad('two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 5\r\netag: "1"\r\n\r\ntile'),
  bad('a length that is not a number', answer('tile', 'content-length: four')),
  bad('not HTTP', 'SSH-2.0-x\r\n\r\n'),
  bad('a flood of interim answers', interimFlood),
  bad('a redirect', statusAnswer(302, 'location: https://origin.test/other')),
  bad('a permanent redirect', statusAnswer(308, 'location: /other')),
  bad('304 without a revalidation', statusAnswer(304, 'etag: "1"')),
  bad('a part of the asset', answer('tile', 'content-range: bytes 0-3/9').replace('200 OK', '206 Partial Content')),
  bad('204', 'HTTP/1.1 204 No Content\r\netag: "1"\r\ncontent-type: image/png\r\n\r\n'),
  bad('403', statusAnswer(403)),
  bad('500', statusAnswer(500)),
  bad('a cookie', answer('tile', 'set-cookie: a=b')),
  bad('Vary by a header of the client', answer('tile', 'vary: accept-encoding, user-agent')),
  bad('Vary by everything', answer('tile', 'vary: *')),
  bad('no media type', answer('tile').replace('content-type: image/png\r\n', '')),
  bad('a media type that is not allowed', answer('<script>', 'content-type: text/html')),
  bad('a range of media types', answer('tile', 'content-type: image/*')),
  bad('two media types', answer('tile', 'content-type: image/png', 'content-type: text/html')),
  bad('an unknown encoding', encoded('compress', Buffer.from('tile'))),
  bad('two encodings', encoded('gzip, gzip', gzipSync(gzipSync('tile')))),
  bad('broken gzip', encoded('gzip', Buffer.from('tile'))),
  bad('truncated gzip', encoded('gzip', gzipSync('tile'.repeat(1000)).subarray(0, -9))),
  bad('bytes after zstd', encoded('zstd', Buffer.concat([zstdCompressSync('tile'), Buffer.from('more')]))),
  etagInvalid('a weak ETag', 'etag: W/"1"'),
  etagInvalid('an ETag without quotes', 'etag: 1'),
  etagInvalid('an ETag with a quote', 'etag: "1"2"'),
  etagInvalid('two ETags', 'etag: "1"', 'etag: "2"'),
  { ...bad('no ETag', answer('tile', FRESH).replace('etag: "1"\r\n', '')), reason: 'etag_invalid' },
  tooLarge('a declared length above the cap', (socket) => socket.write(answer('', `content-length: ${MIB}`))),
  tooLarge('a chunked body above the cap', endless),
  bomb('gzip', gzipSync),
  bomb('br', brotliCompressSync),
  bomb('zstd', zstdCompressSync),
  timeout('a stall in the headers', (socket) => void socket.write('HTTP/1.1 200 OK\r\n')),
  timeout('a stall in the body', (socket) => void socket.write(answer('ti', 'content-length: 4'))),
];

/** Retries have tests of their own. */
const ONCE = ['--retry.live_fill.max_retries=0'];

// [edge I-4] [edge I-10]
test('each fault of an origin has its answer, nothing of it is cached, and its connection is closed', async (t) => {
  // Repeated until it is answered: a request that a kept connection loses is sent once more.
  let fault: Fault | undefined;
  await using origin = await originOf((socket) => {
    if (fault === undefined) socket.write(answer('good', FRESH));
    else fault.send(socket);
  });
  await using edge = await startFilling(origin, { flags: [...ONCE, '--fill.object_bytes_max=64KiB'] });
  for (const [at, each] of FAULTS.entries()) {
    const { name, status, code, reason } = each;
    await t.test(name, async () => {
      const rejects = `edge_rejects_total{reason="${reason}"}`;
      const before = await edge.metric(rejects);
      fault = each;
      refused(await edge.get(`/${at}`), status, code, reason);
      fault = undefined;
      if (reason !== undefined) assert.equal(await edge.metric(rejects), before + 1);
      const reply = await edge.get(`/${at}`);
      assert.deepEqual([reply.status, reply.text], [200, 'good']);
      // The breaker opens when most requests fail.
      for (const more of ['b', 'c']) assert.equal((await edge.get(`/${at}${more}`)).status, 200);
      await eventually('one connection', () => origin.open() <= 1);
    });
  }
});

test('surplus bytes after an answer are never part of another one', async () => {
  await using origin = await originOf((socket) => socket.write(answer('good', FRESH) + answer('evil', FRESH)));
  await using edge = await startFilling(origin);
  for (let at = 0; at < 10; at += 1) {
    const reply = await edge.get(`/${at}.png`);
    assert.ok(reply.status === 502 || reply.text === 'good', reply.text);
  }
});

for (const [name, tls] of [
  ['of another host', authority.issue({ names: 'DNS:evil.test' })],
  ['that has expired', authority.issue({ names: `DNS:${HOST}`, days: -1 })],
  ['that signed itself', authority.selfSigned(`DNS:${HOST}`)],
] as const)
  test(`a certificate ${name} is refused before a request is sent`, async () => {
    await using origin = await originOf((socket) => socket.write(answer('evil', FRESH)), { tls });
    await using edge = await startFilling(origin);
    refused(await edge.get('/a.png'), 502, 'bad_gateway');
    assert.equal(origin.requests.length, 0);
  });

test('an origin that takes no connection, or closes it, is 502', async () => {
  const closed = await originOf(() => undefined);
  await using edge = await startFilling(closed);
  await closed[Symbol.asyncDispose]();
  refused(await edge.get('/a.png'), 502, 'bad_gateway');
});

test('after repeated failures the breaker answers 503 without a request, and the gate names the origin', async () => {
  await using origin = await originOf((socket) => socket.write(statusAnswer(500)));
  await using edge = await startFilling(origin, { flags: ONCE });
  await eventually('the breaker opens', async () => (await edge.get(`/${origin.requests.length}`)).status === 503);
  const requests = origin.requests.length;
  refused(await edge.get('/a.png'), 503, 'breaker_open');
  assert.equal(origin.requests.length, requests);
  assert.ok((await edge.metric('breaker_open_total{target="origins"}')) > 0);
  const problem = `requests to https://${HOST}:${origin.port} fail`;
  await eventually('the gate', async () => (await edge.send('GET', '/readyz')).text.includes(problem));
  assert.equal((await edge.send('GET', '/readyz')).status, 200);
});

test('answers that encode the body are decoded', async () => {
  const codings = { gzip: gzipSync, br: brotliCompressSync, zstd: zstdCompressSync };
  for (const [coding, compress] of Object.entries(codings)) {
    await using origin = await originOf(encoded(coding, compress(Buffer.from('tile'.repeat(100)))));
    await using edge = await startFilling(origin);
    const reply = await edge.get('/a.png');
    assert.deepEqual([reply.status, reply.text], [200, 'tile'.repeat(100)]);
    assert.equal(reply.headers['content-encoding'], undefined);
  }
});

test('nothing of the client goes to the origin', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin);
  const sent = {
    cookie: 'c=1',
    authorization: 'Basic eA==',
    'user-agent': 'x',
    referer: 'http://r',
    range: 'bytes=1-2',
  };
  assert.equal((await edge.get('/a.png', { ...sent, 'accept-encoding': 'br', 'x-own': '1' })).text, 'il');
  const lines = origin.requests[0]!.split('\r\n').map((line) => line.toLowerCase());
  assert.deepEqual(lines.toSorted(), [
    'accept-encoding: identity',
    'connection: keep-alive',
    'get /a.png http/1.1',
    `host: ${HOST}:${origin.port}`,
  ]);
});
