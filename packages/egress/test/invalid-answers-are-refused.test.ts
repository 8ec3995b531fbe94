import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ErrorCode } from '@ron/kernel';
import { clientOf, get, hostile, never, ok, quiet, refused, reset, text, until, type Script } from './support.ts';

/** The bytes that the server sends before it ends the connection. */
const raw =
  (bytes: string): Script =>
  (socket) =>
    void socket.end(Buffer.from(bytes, 'latin1'));

const head = (...lines: string[]): string => ['HTTP/1.1 200 OK', ...lines, '', ''].join('\r\n');

const CASES: Readonly<Record<string, readonly [script: Script, code: ErrorCode, reason?: string]>> = {
  'HTTP/0.9': [raw('<html>hello</html>'), 'bad_gateway', 'malformed'],
  'another protocol': [raw('SSH-2.0-OpenSSH_9.2\r\n'), 'bad_gateway', 'malformed'],
  'HTTP/2.0 in the status line': [raw('HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n'), 'bad_gateway', 'version'],
  'no bytes at all': [raw(''), 'unreachable'],
  'half a header section': [raw('HTTP/1.1 200 OK\r\ncontent-le'), 'unreachable'],
  'a status above 599': [raw('HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n'), 'bad_gateway', 'status'],
  'a header without a colon': [raw(head('content-length: 0', 'junk')), 'bad_gateway', 'malformed'],
  'a NUL in a header': [raw(head('content-length: 0', 'x: a\0b')), 'bad_gateway', 'malformed'],
  'a folded header': [raw(head('x: a\r\n b', 'content-length: 0')), 'bad_gateway', 'malformed'],
  'lines that end with LF only': [raw('HTTP/1.1 200 OK\ncontent-length: 0\n\n'), 'bad_gateway', 'malformed'],
  'two equal Content-Length headers': [
    raw(`${head('content-length: 2', 'content-length: 2')}ab`),
    'bad_gateway',
    'malformed',
  ],
  'two different Content-Length headers': [
    raw(`${head('content-length: 2', 'content-length: 3')}abc`),
    'bad_gateway',
    'malformed',
  ],
  'a list as Content-Length': [raw(`${head('content-length: 2, 2')}ab`), 'bad_gateway', 'malformed'],
  'a negative Content-Length': [raw(head('content-length: -1')), 'bad_gateway', 'malformed'],
  'a huge Content-Length': [raw(head(`content-length: ${'9'.repeat(30)}`)), 'bad_gateway', 'malformed'],
  'Content-Length and chunked': [
    raw(`${head('content-length: 3', 'transfer-encoding: chunked')}0\r\n\r\n`),
    'bad_gateway',
  ],
  'gzip, chunked': [raw(`${head('transfer-encoding: gzip, chunked')}0\r\n\r\n`), 'bad_gateway', 'framing'],
  'chunked in two headers': [
    raw(`${head('transfer-encoding: gzip', 'transfer-encoding: chunked')}0\r\n\r\n`),
    'bad_gateway',
    'framing',
  ],
  'chunked hidden behind 1500 headers': [
    raw(`${head(...Array<string>(1500).fill('a:b'), 'transfer-encoding: gzip, chunked')}0\r\n\r\n`),
    'bad_gateway',
    'framing',
  ],
  'chunked, chunked': [raw(`${head('transfer-encoding: chunked, chunked')}0\r\n\r\n`), 'bad_gateway', 'framing'],
  'a transfer coding that is not chunked': [raw(`${head('transfer-encoding: gzip')}abc`), 'bad_gateway', 'framing'],
  'a body that only the end of the connection delimits': [raw(`${head('x: y')}abc`), 'bad_gateway', 'framing'],
  'a body shorter than its Content-Length': [raw(`${head('content-length: 10')}abc`), 'unreachable'],
  'a body without its first byte': [raw(head('content-length: 10')), 'unreachable'],
  'chunks without an end': [raw(`${head('transfer-encoding: chunked')}3\r\nabc\r\n`), 'unreachable'],
  'half a chunk': [raw(`${head('transfer-encoding: chunked')}ff\r\nabc`), 'unreachable'],
  'a chunk size that is not a number': [raw(`${head('transfer-encoding: chunked')}zz\r\nabc\r\n`), 'bad_gateway'],
  'a chunk longer than its size': [raw(`${head('transfer-encoding: chunked')}2\r\nabc\r\n0\r\n\r\n`), 'bad_gateway'],
  'a chunk extension without end': [raw(`${head('transfer-encoding: chunked')}2;${'x'.repeat(40_000)}`), 'bad_gateway'],
  'trailers without end': [
    raw(`${head('transfer-encoding: chunked')}0\r\n${'x: yyyyyyyy\r\n'.repeat(8000)}`),
    'bad_gateway',
  ],
  'a switch of protocols': [
    raw('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n'),
    'bad_gateway',
    'upgrade',
  ],
  'interim answers without end': [
    (socket) => {
      for (let count = 0; count < 1000; count++) socket.write('HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n');
    },
    'bad_gateway',
    'interim',
  ],
  'headers without end': [
    (socket) => {
      const more = (): void => {
        while (socket.writable && socket.write(`x: ${'y'.repeat(1000)}\r\n`));
      };
      socket.on('drain', more);
      socket.write('HTTP/1.1 200 OK\r\n');
      more();
    },
    'bad_gateway',
    'headers_too_large',
  ],
  'one header line without end': [
    raw(`HTTP/1.1 200 OK\r\nx: ${'y'.repeat(100_000)}`),
    'bad_gateway',
    'headers_too_large',
  ],
  'a reset in the body': [
    (socket) => socket.write(`${head('content-length: 100')}abc`, () => void reset(socket)),
    'unreachable',
  ],
  'a reset in the headers': [
    (socket) => socket.write('HTTP/1.1 200 OK\r\nx:', () => void reset(socket)),
    'unreachable',
  ],
};

for (const [name, [script, code, reason]] of Object.entries(CASES)) {
  test(`${name}: ${code}, never an answer with a whole body`, async () => {
    await using server = await hostile(script);
    await using egress = clientOf(server);
    await refused(get(egress, server.url), code, reason);
    await quiet(egress);
    await until(() => server.open() === 0);
    assert.equal(egress.connections.idle, 0);
  });
}

test('a redirect is an answer: its target is not requested', async () => {
  const lookups: string[] = [];
  const location = 'location: http://169.254.169.254/latest/meta-data/';
  await using server = await hostile((socket) =>
    socket.write(`HTTP/1.1 302 Found\r\n${location}\r\ncontent-length: 0\r\n\r\n`),
  );
  const lookup = (name: string): Promise<string[]> => Promise.resolve((lookups.push(name), ['127.0.0.1']));
  await using egress = clientOf(server, { lookup });
  const answer = await get(egress, server.url);
  assert.equal(answer.status, 302);
  assert.deepEqual(answer.headers['location'], ['http://169.254.169.254/latest/meta-data/']);
  assert.deepEqual({ lookups, requests: server.requests.length }, { lookups: ['origin.test'], requests: 1 });
});

test('framing is read behind any number of headers that fit', async () => {
  const many = Array<string>(1500).fill('a:b');
  await using server = await hostile((socket) => socket.write(`${head(...many, 'content-length: 5')}hello`));
  await using egress = clientOf(server);
  assert.equal(text((await get(egress, server.url)).body), 'hello');
});

test('no cookie is kept, and repeated headers are seen one by one', async () => {
  await using server = await hostile((socket) =>
    socket.write(ok('', 'set-cookie: a=1', 'set-cookie: b=2', 'x: 1', 'x: 2')),
  );
  await using egress = clientOf(server);
  const { headers } = await get(egress, server.url);
  assert.deepEqual(
    [headers['set-cookie'], headers['x']],
    [
      ['a=1', 'b=2'],
      ['1', '2'],
    ],
  );
  await get(egress, server.url);
  assert.ok(server.requests.every((request) => !/cookie/i.test(request)));
});

test('an interim answer is dropped and the answer after it is given', async () => {
  await using server = await hostile((socket) =>
    socket.write(`HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n${ok('late')}`),
  );
  await using egress = clientOf(server);
  assert.equal(text((await get(egress, server.url)).body), 'late');
});

test('HEAD, 204 and 304 have no body, even if they declare a length, and their connection is kept', async () => {
  await using server = await hostile((socket, request) => {
    const status = request.startsWith('HEAD') ? '200 OK' : request.includes('/204') ? '204 X' : '304 X';
    socket.write(`HTTP/1.1 ${status}\r\n${status.startsWith('204') ? '' : 'content-length: 5\r\n'}\r\n`);
  });
  await using egress = clientOf(server);
  for (const [method, path] of [
    ['HEAD', ''],
    ['GET', '204'],
    ['GET', '304'],
  ] as const) {
    const answer = await egress.whole({ method, url: server.url + path }, { deadline: never() });
    assert.equal(answer.body.length, 0);
    await quiet(egress);
  }
  assert.equal(server.accepted(), 1);
});
