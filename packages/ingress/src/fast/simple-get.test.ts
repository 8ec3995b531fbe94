/**
 * Compares the recognizer of simple GETs with Node's own parser: both must read the same request, and a text that Node
 * refuses, or reads as more or less than one request, must not be recognised.
 */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage } from 'node:http';
import { duplexPair } from 'node:stream';
import { test } from 'node:test';
import fc from 'fast-check';
import { assertLinearTime } from '../../test/linear-time.ts';
import { simpleGetBytesMax, parseSimpleGet } from './simple-get.ts';

interface Read {
  readonly requests: IncomingMessage[];
  readonly bodies: string[];
  readonly refused: boolean;
}

/** Node's reading of a text. */
async function byNode(text: string): Promise<Read> {
  const read = { requests: [] as IncomingMessage[], bodies: [] as string[], refused: false };
  const server = createServer({ requireHostHeader: false, joinDuplicateHeaders: false }, (req, res) => {
    read.requests.push(req);
    let body = '';
    req.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')));
    req.on('end', () => read.bodies.push(body));
    res.end();
  });
  server.on('clientError', (_error, socket) => {
    read.refused = true;
    socket.destroy();
  });
  server.on('upgrade', (req: IncomingMessage) => read.requests.push(req));
  const [ours, theirs] = duplexPair();
  server.emit('connection', theirs);
  ours.on('error', () => undefined);
  ours.resume();
  ours.write(text, 'latin1');
  for (let turn = 0; turn < 6; turn++) await new Promise((resolve) => void setImmediate(resolve));
  ours.destroy();
  theirs.destroy();
  return read;
}

const NAMES = [
  'Host',
  'host',
  'HOST',
  'User-Agent',
  'Accept',
  'Accept-Encoding',
  'Cache-Control',
  'Referer',
  'Origin',
  'Sec-Fetch-Mode',
  'Sec-X',
  'X-Corr-ID',
  'x-corr-id',
  'If-None-Match',
  'Connection',
  'Range',
  'Content-Length',
  'Transfer-Encoding',
  'Expect',
  'Upgrade',
  'Sec-WebSocket-Key',
  'Host ',
  ' Host',
  'Ho\tst',
  'X',
  '',
];
const VALUES = [
  'localhost',
  'a:80',
  'keep-alive',
  'close',
  'Keep-Alive',
  'keep-alive, upgrade',
  '"tag"',
  'W/"tag"',
  '"a", "b"',
  '*',
  'abc_-9',
  '0',
  '5',
  'chunked',
  '100-continue',
  'bytes=0-1',
  '',
  ' ',
  'a b',
  'a\tb',
  'caf\xe9',
  'a\0b',
  'a\x7fb',
  'a\r',
  'a\nX: y',
];
const header = fc
  .tuple(fc.constantFrom(...NAMES), fc.constantFrom(': ', ':', ':  ', ' : ', ''), fc.constantFrom(...VALUES))
  .map((parts) => parts.join(''));
const ordinary = fc.constantFrom(
  'User-Agent: curl/8',
  'Accept: */*',
  'accept-encoding: gzip, br',
  'Connection: keep-alive',
  'X-Corr-ID: abc',
  'If-None-Match: "t"',
  'Sec-Fetch-Mode: cors',
);
const often = <T>(good: fc.Arbitrary<T>, odd: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.oneof({ arbitrary: good, weight: 8 }, { arbitrary: odd, weight: 1 });
const anyRequest = fc
  .record({
    method: often(fc.constant('GET'), fc.constantFrom('HEAD', 'PUT', 'get', 'GET\t', 'PRI', '')),
    target: often(
      fc.constantFrom('/o/b3:00', '/', '/o/x?y', '*', '/o/%00'),
      fc.constantFrom('http://a/', 'a', '', '/a b', '/caf\xe9', '/\x01', '/#f'),
    ),
    version: often(fc.constant('HTTP/1.1'), fc.constantFrom('HTTP/1.0', 'HTTP/2.0', 'HTTP/1.1 ', 'http/1.1', '')),
    host: often<readonly string[]>(
      fc.constant(['Host: localhost']),
      fc.constantFrom<readonly string[]>([], ['Host: a', 'Host: b'], ['Host:']),
    ),
    before: fc.array(often(ordinary, header), { maxLength: 3 }),
    after: fc.array(often(ordinary, header), { maxLength: 4 }),
    line_end: often(fc.constant('\r\n'), fc.constantFrom('\n', '\r', '\r\r\n')),
    end: often(
      fc.constant('\r\n'),
      fc.constantFrom('', '\n', '\r\n\r\n', '\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n', '\r\nbody'),
    ),
  })
  .map(({ method, target, version, host, before, after, line_end, end }) => {
    const lines = [`${method} ${target} ${version}`, ...before, ...host, ...after];
    return lines.map((line) => `${line}${line_end}`).join('') + end;
  });
const plainText = fc
  .array(ordinary, { maxLength: 4 })
  .map((lines) => `GET /o/b3:00 HTTP/1.1\r\nHost: localhost\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`);
/** A simple GET with one character changed, removed or inserted. */
const damaged = fc
  .tuple(plainText, fc.nat(160), fc.integer({ min: 0, max: 255 }), fc.nat(2))
  .map(([text, at, code, cut]) => text.slice(0, at) + String.fromCharCode(code) + text.slice(at + cut));

async function assertSame(text: string): Promise<boolean> {
  const plain = parseSimpleGet(text);
  if (plain === undefined) return false;
  const { requests, bodies, refused } = await byNode(text);
  assert.ok(!refused && requests.length === 1, `Node reads ${requests.length} requests of ${JSON.stringify(text)}`);
  const [request] = requests;
  assert.equal(request!.method, 'GET');
  assert.equal(request!.httpVersion, '1.1');
  assert.equal(request!.url, plain.target);
  assert.deepEqual(bodies, ['']);
  const { headersDistinct } = request!;
  assert.deepEqual(headersDistinct['host'], [plain.host]);
  assert.deepEqual(headersDistinct['x-corr-id'], plain.corr_id === undefined ? undefined : [plain.corr_id]);
  const tags = plain.if_none_match === undefined ? undefined : [plain.if_none_match];
  assert.deepEqual(headersDistinct['if-none-match'], tags);
  for (const name of ['range', 'if-range', 'if-match', 'expect', 'upgrade', 'authorization', 'content-length'])
    assert.equal(headersDistinct[name], undefined, name);
  assert.notEqual(request!.headers.connection, 'close');
  return true;
}

for (const [kind, texts, share_min] of [
  ['composed', anyRequest, 0.1],
  ['damaged', damaged, 0.03],
] as const) {
  test(`${kind} requests that are recognised match the reading of Node`, async () => {
    let recognised = 0;
    let tried = 0;
    await fc.assert(
      fc.asyncProperty(texts, async (text) => {
        tried += 1;
        if (await assertSame(text)) recognised += 1;
      }),
      { numRuns: process.env['RON_LONG'] === '1' ? 200_000 : 6000 },
    );
    assert.ok(recognised / tried > share_min, `${recognised} of ${tried} were recognised: too few for a proof`);
  });
}

test('requests of ordinary clients are recognised', () => {
  for (const headers of [
    ['Host: localhost:7101', 'User-Agent: curl/8.5.0', 'Accept: */*'],
    ['host: localhost', 'connection: keep-alive', 'accept: */*', 'accept-language: *', 'sec-fetch-mode: cors'],
    [
      'Host: a',
      'User-Agent: Mozilla/5.0 (X11)',
      'If-None-Match: "b3:00"',
      'Connection: keep-alive',
      'Pragma: no-cache',
    ],
  ]) {
    const text = `GET /o/x HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n`;
    assert.equal(parseSimpleGet(text)?.target, '/o/x', text);
  }
});

test('a text within the byte limit has no more header lines than the limit allows', () => {
  const bytes_max = simpleGetBytesMax(16_384, 20);
  const text = `GET / HTTP/1.1\r\nHost: a\r\n${'Sec-AB:\r\n'.repeat(40)}\r\n`;
  const lines = text.slice(0, bytes_max).split('\r\n').length;
  assert.ok(lines <= 20 && simpleGetBytesMax(100, 128) === 100, `${lines} lines`);
});

test('refusing a text takes linear time', () => {
  for (const repeated of [
    'Accept: x\r\n',
    'Accept:  x\r\n',
    'Accept: \r\n',
    'Connection: keep-alive\r\n',
    'Sec-AB: -\r\n',
  ]) {
    for (const start of ['Host: a\r\n', 'Host: a\r\nX-Corr-ID: a\r\n', '']) {
      assertLinearTime((length) => {
        const lines = repeated.repeat(length / repeated.length);
        assert.equal(parseSimpleGet(`GET / HTTP/1.1\r\n${start}${lines}Foo: y\r\n\r\n`), undefined);
      });
    }
  }
});
