import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { clientOf, get, hostile, never, ok, quiet, refused, text, until } from './support.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

/** Writes pieces until the client closes the connection. */
function flood(socket: Socket, piece: Buffer): void {
  const more = (): void => {
    while (socket.writable && socket.write(piece));
  };
  socket.on('drain', more);
  more();
}

const encoded = (bytes: Buffer, coding: string): Buffer =>
  Buffer.concat([
    Buffer.from(`HTTP/1.1 200 OK\r\ncontent-encoding: ${coding}\r\ncontent-length: ${bytes.length}\r\n\r\n`),
    bytes,
  ]);

test('a declared length above the limit is refused before the body, an undeclared one at the limit', async () => {
  const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(64 * KIB), Buffer.from('\r\n')]);
  await using server = await hostile((socket, head) => {
    if (head.includes('/declared')) return void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1048577\r\n\r\n');
    socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n');
    return flood(socket, chunk);
  });
  await using egress = clientOf(server, { limits: { body_bytes_max: MIB } });
  await refused(get(egress, `${server.url}declared`), 'payload_too_large');
  let received = 0;
  const reading = egress.exchange({ url: server.url }, { deadline: never() }, async ({ body }) => {
    for await (const piece of body) received += piece.length;
  });
  await refused(reading, 'payload_too_large');
  assert.ok(received <= MIB, `${received} bytes were given`);
  await quiet(egress);
  await until(() => server.open() === 0);
  assert.equal(egress.outcomes.too_large, 2);
});

test('a request may lower the limit, never raise it', async () => {
  await using server = await hostile((socket) => socket.write(ok('x'.repeat(1000))));
  await using egress = clientOf(server, { limits: { body_bytes_max: 1000 } });
  const whole = (bytes_max: number): Promise<unknown> =>
    egress.whole({ url: server.url, bytes_max }, { deadline: never() });
  await whole(1000);
  await whole(1e9);
  await refused(whole(999), 'payload_too_large');
  await using smaller = clientOf(server, { limits: { body_bytes_max: 999 } });
  await refused(smaller.whole({ url: server.url, bytes_max: 1e9 }, { deadline: never() }), 'payload_too_large');
});

test('a reader that stops holds the server back', async () => {
  let sent = (): number => 0;
  await using server = await hostile((socket) => {
    sent = () => socket.bytesWritten - socket.writableLength;
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${1024 * MIB}\r\n\r\n`);
    flood(socket, Buffer.alloc(256 * KIB));
  });
  await using egress = clientOf(server, { limits: { body_bytes_max: 2048 * MIB } });
  await egress.exchange({ url: server.url }, { deadline: never() }, async ({ body }) => {
    await body[Symbol.asyncIterator]().next();
    // Until the buffers between the two are full.
    for (let last = -1; last !== sent(); await new Promise((resolve) => void setTimeout(resolve, 100))) last = sent();
    assert.ok(sent() < 64 * MIB, `the server could send ${sent()} bytes`);
  });
  await until(() => server.open() === 0);
});

test('bodies are given as sent unless decoding is requested', async () => {
  const packed = gzipSync('hello');
  await using server = await hostile((socket) => socket.write(encoded(packed, 'gzip')));
  await using egress = clientOf(server);
  const answer = await get(egress, server.url);
  assert.deepEqual(Buffer.from(answer.body), packed);
  assert.deepEqual(answer.headers['content-encoding'], ['gzip']);
  const decoded = await egress.whole({ url: server.url, decode: true }, { deadline: never() });
  assert.equal(text(decoded.body), 'hello');
  assert.match(server.requests[0]!, /accept-encoding: identity/);
  await quiet(egress);
  assert.equal(server.accepted(), 1);
});

test('bombs are cut at the cap for each coding', async () => {
  const zeros = Buffer.alloc(64 * MIB);
  const bombs = {
    gzip: gzipSync(zeros),
    br: brotliCompressSync(zeros, { params: { 1: 1 } }),
    zstd: zstdCompressSync(zeros),
  };
  for (const [coding, bomb] of Object.entries(bombs)) {
    await using server = await hostile((socket) => socket.write(encoded(bomb, coding)));
    for (const limits of [{}, { decompress_ratio_max: 1e9 }]) {
      await using egress = clientOf(server, { limits });
      let given = 0;
      const reading = egress.exchange({ url: server.url, decode: true }, { deadline: never() }, async ({ body }) => {
        for await (const piece of body) given += piece.length;
      });
      await refused(reading, 'decompress_cap');
      assert.ok(given <= 10 * MIB, `${coding}: ${given} bytes were given`);
      await quiet(egress);
    }
    await until(() => server.open() === 0);
  }
});

test('an encoding that is damaged, unknown or cut is an error of the server', async () => {
  const packed = gzipSync('x'.repeat(1000));
  const cases = [
    [encoded(Buffer.from('not gzip'), 'gzip'), 'bad_gateway'],
    [encoded(packed.subarray(0, 15), 'gzip'), 'bad_gateway'],
    [encoded(packed, 'gzip, gzip'), 'bad_gateway'],
    [encoded(packed, 'compress'), 'bad_gateway'],
    [encoded(packed, 'gzip').subarray(0, -5), 'unreachable'],
  ] as const;
  for (const [bytes, code] of cases) {
    await using server = await hostile((socket) => void socket.end(bytes));
    await using egress = clientOf(server);
    await refused(egress.whole({ url: server.url, decode: true }, { deadline: never() }), code);
    await quiet(egress);
    await until(() => server.open() === 0);
  }
});

test('a request body is sent whole and bounded; headers of the connection are refused', async () => {
  const bodies: string[] = [];
  await using server = await hostile((socket, head) => {
    bodies.push(head);
    socket.write(ok('done'));
  });
  await using egress = clientOf(server, { limits: { request_bytes_max: 10 } });
  const post = (body: string, headers: Record<string, string> = {}): Promise<unknown> =>
    egress.whole({ url: server.url, method: 'POST', body: Buffer.from(body), headers }, { deadline: never() });
  await post('0123456789', { 'x-test': '1' });
  assert.match(bodies[0]!, /^POST \/ HTTP\/1\.1\r\n[^]*content-length: 10/);
  await refused(post('0123456789a'), 'payload_too_large');
  for (const name of [
    'Host',
    'Connection',
    'content-length',
    'Transfer-Encoding',
    'Upgrade',
    'Proxy-Authorization',
    'Cookie',
  ])
    await refused(post('', { [name]: 'x' }), 'validation');
  await refused(post('', { 'x-test': 'a\r\nb: c' }), 'validation');
  await refused(post('', { 'bad name': 'x' }), 'validation');
  await quiet(egress);
});
