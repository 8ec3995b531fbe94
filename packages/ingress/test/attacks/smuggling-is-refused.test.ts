/**
 * Request smuggling: requests whose end two implementations could see in different places. Each hides a second request
 * for a note that no other request names. That note must never be returned, and later bytes on the connection must never
 * be answered as part of another request.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { AUTHORIZATION, Target, raw, withstands } from './target.ts';

let target: Target;

before(async () => {
  target = await Target.start('--read_timeout=400ms', '--server.header_timeout=400ms');
  await target.put('smuggled', 'THE HIDDEN ANSWER');
});
after(() => target[Symbol.asyncDispose]());

const HIDDEN = 'GET /notes/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n';
const FOLLOW_UP = raw('GET /greeting HTTP/1.1', ['Host: localhost', 'X-Corr-ID: follow-up', 'Connection: close']);

/** The head of a POST with these lines, then the hidden request as (part of) its body, or as a chunked body. */
const post = (lines: readonly string[], body: string = HIDDEN): string =>
  raw('POST /raw HTTP/1.1', ['Host: localhost', ...lines], body);
const CHUNKED_HIDDEN = `0\r\n\r\n${HIDDEN}`;
const n = HIDDEN.length;

/** Ambiguous or malformed framing: one refusal, then the connection ends, and later bytes are not answered. */
const REFUSED: Readonly<Record<string, string>> = {
  'length and encoding': post(['Content-Length: 4', 'Transfer-Encoding: chunked'], CHUNKED_HIDDEN),
  'encoding and length': post(['Transfer-Encoding: chunked', 'Content-Length: 4'], CHUNKED_HIDDEN),
  'length and encoding in odd case': post(['content-LENGTH: 4', 'transfer-ENCODING: ChUnKeD'], CHUNKED_HIDDEN),
  'two lengths that differ': post(['Content-Length: 0', `Content-Length: ${n}`]),
  'two lengths that agree': post([`Content-Length: ${n}`, `Content-Length: ${n}`]),
  'a list of lengths': post([`Content-Length: ${n}, ${n}`]),
  'a list of lengths that differ': post([`Content-Length: 0, ${n}`]),
  'a length with a plus': post(['Content-Length: +0']),
  'a negative length': post(['Content-Length: -1']),
  'a hexadecimal length': post(['Content-Length: 0x0']),
  'a length with a fraction': post(['Content-Length: 0.0']),
  'a length with a letter': post(['Content-Length: 0a']),
  'a length with a space inside': post(['Content-Length: 0 0']),
  'an empty length': post(['Content-Length:']),
  'a length beyond 64 bits': post([`Content-Length: ${2n ** 64n}`]),
  'a length of many digits': post([`Content-Length: ${'9'.repeat(200)}`]),
  'another encoding': post(['Transfer-Encoding: xchunked'], CHUNKED_HIDDEN),
  identity: post(['Transfer-Encoding: identity'], CHUNKED_HIDDEN),
  'gzip before chunked': post(['Transfer-Encoding: gzip, chunked'], CHUNKED_HIDDEN),
  'chunked before identity': post(['Transfer-Encoding: chunked, identity'], CHUNKED_HIDDEN),
  'chunked twice in one line': post(['Transfer-Encoding: chunked, chunked'], CHUNKED_HIDDEN),
  'chunked on two lines': post(['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'], CHUNKED_HIDDEN),
  'chunked, then another on a second line': post(
    ['Transfer-Encoding: chunked', 'Transfer-Encoding: x'],
    CHUNKED_HIDDEN,
  ),
  'gzip, then chunked on a second line': post(
    ['Transfer-Encoding: gzip', 'Transfer-Encoding: chunked'],
    CHUNKED_HIDDEN,
  ),
  'an unknown encoding, then chunked on a second line, in odd case': post(
    ['TRANSFER-encoding: x', 'transfer-ENCODING: Chunked'],
    CHUNKED_HIDDEN,
  ),
  'an empty line of encodings, then chunked': post(
    ['Transfer-Encoding:', 'Transfer-Encoding: chunked'],
    CHUNKED_HIDDEN,
  ),
  'encodings on lines that stand apart': post(
    ['Transfer-Encoding: identity', 'X: y', 'Transfer-Encoding: chunked'],
    CHUNKED_HIDDEN,
  ),
  'encodings on three lines': post(
    ['Transfer-Encoding: gzip', 'Transfer-Encoding: deflate', 'Transfer-Encoding: chunked'],
    CHUNKED_HIDDEN,
  ),
  'a list of encodings, then chunked': post(
    ['Transfer-Encoding: gzip, deflate', 'Transfer-Encoding: chunked'],
    CHUNKED_HIDDEN,
  ),
  'encodings on two lines of a GET': raw(
    'GET /greeting HTTP/1.1',
    ['Host: localhost', 'Transfer-Encoding: gzip', 'Transfer-Encoding: chunked'],
    CHUNKED_HIDDEN,
  ),
  'chunked in quotes': post(['Transfer-Encoding: "chunked"'], CHUNKED_HIDDEN),
  'chunked with a parameter': post(['Transfer-Encoding: chunked;q=1'], CHUNKED_HIDDEN),
  'chunked after a vertical tab': post(['Transfer-Encoding: \u000bchunked'], CHUNKED_HIDDEN),
  'an empty encoding': post(['Transfer-Encoding:'], CHUNKED_HIDDEN),
  'a space before the colon of the encoding': post(['Transfer-Encoding : chunked'], CHUNKED_HIDDEN),
  'a space before the colon of the length': post([`Content-Length : ${n}`]),
  'a tab before the colon': post([`Content-Length\t: ${n}`]),
  'a space before the name': post([' Transfer-Encoding: chunked'], CHUNKED_HIDDEN),
  'a folded encoding': post(['Transfer-Encoding:\r\n chunked'], CHUNKED_HIDDEN),
  'a folded header that hides a length': post(['X: y\r\n Content-Length: 5']),
  'a bare line feed between headers': post([`X: y\nContent-Length: ${n}`]),
  'a bare line feed that ends the headers': `POST /raw HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n${HIDDEN}`,
  'a bare line feed after the request line': `POST /raw HTTP/1.1\nHost: localhost\r\n\r\n${HIDDEN}`,
  'a bare carriage return between headers': post([`X: y\rContent-Length: ${n}`]),
  'a bare carriage return in a value': post(['X: a\rb']),
  'two carriage returns': `POST /raw HTTP/1.1\r\r\nHost: localhost\r\n\r\n${HIDDEN}`,
  'a NUL in a value': post(['X: a\0b']),
  'a NUL in a name': post(['X\0: a']),
  'a name with a space inside': post(['Content Length: 5']),
  'a name that is empty': post([': 5']),
  'a line without a colon': post(['Content-Length']),
  'a name outside ASCII': post([`Content-Length\u00a0: ${n}`]),
  'two hosts': post(['Host: localhost', 'Content-Length: 0']),
  'no host': raw('POST /raw HTTP/1.1', ['Content-Length: 0'], HIDDEN),
  'encoding on HTTP/1.0': raw('POST /raw HTTP/1.0', ['Host: localhost', 'Transfer-Encoding: chunked'], CHUNKED_HIDDEN),
  'HTTP/0.9': `GET /raw\r\n${HIDDEN}`,
  'HTTP/1.2': raw('POST /raw HTTP/1.2', ['Host: localhost', 'Content-Length: 0'], HIDDEN),
  'HTTP/2.0': raw('POST /raw HTTP/2.0', ['Host: localhost', 'Content-Length: 0'], HIDDEN),
  'the preface of HTTP/2': 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  'a version that is none': raw('POST /raw HTTP/1.1x', ['Host: localhost', 'Content-Length: 0'], HIDDEN),
  'a lower-case method': raw('post /raw HTTP/1.1', ['Host: localhost', 'Content-Length: 0'], HIDDEN),
  'an unknown method': raw('BREW /raw HTTP/1.1', ['Host: localhost', 'Content-Length: 0'], HIDDEN),
  'a tab in the request line': raw('POST\t/raw HTTP/1.1', ['Host: localhost', 'Content-Length: 0'], HIDDEN),
  'a space at the end of the request line': raw(
    'POST /raw HTTP/1.1 ',
    ['Host: localhost', 'Content-Length: 0'],
    HIDDEN,
  ),
  CONNECT: raw('CONNECT localhost:80 HTTP/1.1', ['Host: localhost'], HIDDEN),
  'a chunk size with 0x': post(['Transfer-Encoding: chunked'], `0x0\r\n\r\n${HIDDEN}`),
  'a chunk size with a sign': post(['Transfer-Encoding: chunked'], `-1\r\n\r\n${HIDDEN}`),
  'a chunk size with a plus': post(['Transfer-Encoding: chunked'], `+0\r\n\r\n${HIDDEN}`),
  'a chunk size with an underscore': post(['Transfer-Encoding: chunked'], `0_0\r\n\r\n${HIDDEN}`),
  'a chunk size beyond 64 bits': post(['Transfer-Encoding: chunked'], `10000000000000000\r\nx\r\n0\r\n\r\n${HIDDEN}`),
  'an empty chunk size': post(['Transfer-Encoding: chunked'], `\r\n\r\n${HIDDEN}`),
  'a chunk size that ends in a line feed': post(['Transfer-Encoding: chunked'], `1\nx\r\n0\r\n\r\n${HIDDEN}`),
  'a chunk size that ends in a carriage return': post(['Transfer-Encoding: chunked'], `1\rx\r\n0\r\n\r\n${HIDDEN}`),
  'a chunk that is longer than it said': post(['Transfer-Encoding: chunked'], `1\r\nxy\r\n0\r\n\r\n${HIDDEN}`),
  'a chunk that ends in a line feed': post(['Transfer-Encoding: chunked'], `1\r\nx\n0\r\n\r\n${HIDDEN}`),
  'a chunk extension with a line feed': post(['Transfer-Encoding: chunked'], `0;a\n\r\n\r\n${HIDDEN}`),
  'a chunk extension with a carriage return': post(['Transfer-Encoding: chunked'], `0;a\rb\r\n\r\n${HIDDEN}`),
  'a last chunk that ends in line feeds': post(['Transfer-Encoding: chunked'], `0\n\n${HIDDEN}`),
  'a trailer with a length': post(['Transfer-Encoding: chunked'], `0\r\nContent-Length: ${n}\r\n\r\n${HIDDEN}`),
  'a trailer with an encoding': post(
    ['Transfer-Encoding: chunked'],
    `0\r\nTransfer-Encoding: chunked\r\n\r\n${HIDDEN}`,
  ),
  'a trailer with a bare line feed': post(['Transfer-Encoding: chunked'], `0\r\nX: y\n\r\n${HIDDEN}`),
};

describe('ambiguous framing is refused once, and the connection ends', () => {
  for (const [name, request] of Object.entries(REFUSED)) {
    test(name, async () => {
      const wire = await target.open();
      wire.write(request);
      await wire.until(() => wire.statuses.length > 0);
      wire.write(FOLLOW_UP);
      await wire.rest();
      // [storage I-10] [kms I-10] [index I-10] [edge I-10] [interop I-10]
      assert.equal(wire.statuses.length, 1, wire.received);
      const [status] = wire.statuses;
      assert.ok(status === 400 || status === 405 || status === 408 || status === 413, wire.received.slice(0, 200));
      assert.match(wire.received, /^content-type: application\/problem\+json\r$/im);
      assert.doesNotMatch(wire.received, /THE HIDDEN ANSWER/);
      assert.doesNotMatch(wire.received, /follow-up/);
    });
  }
});

/** Unambiguous framing: the hidden request is body, and the follow-up gets its own answer. */
const PLAIN: Readonly<Record<string, readonly [request: string, status: number]>> = {
  'a length': [post([`Content-Length: ${n}`]), 200],
  'a length with space around': [post([`Content-Length: \t ${n} \t`]), 200],
  'a length with zeros in front': [post([`Content-Length: 000${n}`]), 200],
  chunked: [post(['Transfer-Encoding: chunked'], `${n.toString(16)}\r\n${HIDDEN}\r\n0\r\n\r\n`), 200],
  'chunked in odd case': [
    post(['transfer-encoding: cHuNkEd'], `${n.toString(16).toUpperCase()}\r\n${HIDDEN}\r\n0\r\n\r\n`),
    200,
  ],
  'an empty line in front': [`\r\n${post([`Content-Length: ${n}`])}`, 200],
  'a body on a route without one': [
    raw('GET /greeting HTTP/1.1', ['Host: localhost', `Content-Length: ${n}`], HIDDEN),
    400,
  ],
  'a body on a route in RAM': [
    raw('GET /notes/none HTTP/1.1', ['Host: localhost', `Content-Length: ${n}`], HIDDEN),
    400,
  ],
  'a body that is refused unread': [
    raw('POST /a//b HTTP/1.1', ['Host: localhost', `Content-Length: ${n}`], HIDDEN),
    400,
  ],
  'a body without a capability': [
    raw('PUT /notes/x HTTP/1.1', ['Host: localhost', `Content-Length: ${n}`], HIDDEN),
    401,
  ],
};

describe('unambiguous framing is read correctly, and the next request has its own answer', () => {
  for (const [name, [request, status]] of Object.entries(PLAIN)) {
    test(name, async () => {
      const wire = await target.open();
      wire.write(request + FOLLOW_UP);
      await wire.rest();
      assert.equal(wire.statuses[0], status, wire.received);
      assert.doesNotMatch(wire.received, /THE HIDDEN ANSWER/);
      // A refusal may end the connection; an answer to the follow-up must belong to it.
      if (wire.statuses.length > 1 || status < 400) {
        assert.deepEqual(wire.statuses, [status, 200], wire.received);
        assert.match(wire.received, /X-Corr-ID: follow-up[^]*"greeting":"hello"/);
      }
    });
  }
});

test('an upgrade is answered as an ordinary request, the last of its connection', async () => {
  const requests = [
    raw('GET /greeting HTTP/1.1', [
      'Host: localhost',
      'Connection: Upgrade',
      'Upgrade: h2c',
      'HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA',
    ]),
    raw('GET /greeting HTTP/1.1', [
      'Host: localhost',
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
    ]),
    raw('GET /slow/100 HTTP/1.1', ['Host: localhost', 'Connection: Upgrade', 'Upgrade: h2c']),
    raw(
      'POST /raw HTTP/1.1',
      ['Host: localhost', 'Connection: Upgrade', 'Upgrade: h2c', `Content-Length: ${n}`],
      HIDDEN,
    ),
  ];
  for (const request of requests) {
    for (const parts of [
      [request + HIDDEN],
      [request, HIDDEN],
      [request + HIDDEN.slice(0, 5), `${HIDDEN.slice(5)}${HIDDEN}`],
    ]) {
      const wire = await target.open();
      for (const part of parts) {
        wire.write(part);
        await wire.until(() => wire.closed, 20);
      }
      await wire.rest();
      assert.deepEqual(wire.statuses, [200], wire.received);
      assert.match(wire.received, /^connection: close\r$/im);
      assert.doesNotMatch(wire.received, /THE HIDDEN ANSWER/);
    }
  }
});

test('a streamed body is framed the same way', async () => {
  const wire = await target.open();
  wire.write(
    raw(
      'PUT /notes/framed HTTP/1.1',
      ['Host: localhost', AUTHORIZATION, 'Transfer-Encoding: chunked'],
      `${n.toString(16)}\r\n${HIDDEN}\r\n0\r\n\r\n`,
    ) + FOLLOW_UP,
  );
  await wire.rest();
  assert.deepEqual(wire.statuses, [201, 200]);
  assert.equal((await target.send('GET', '/notes/framed')).text, HIDDEN);
});

test('a request with Expect: 100-continue is not answered twice, nor its body parsed as a request', async () => {
  const wire = await target.open();
  const lines = ['Host: localhost', 'Expect: 100-continue', `Content-Length: ${n}`];
  wire.write(raw('POST /raw HTTP/1.1', lines));
  assert.ok(await wire.until(() => wire.received.includes('100 Continue')), wire.received);
  wire.write(HIDDEN + FOLLOW_UP);
  await wire.rest();
  assert.deepEqual(wire.statuses, [100, 200, 200]);
  assert.doesNotMatch(wire.received, /THE HIDDEN ANSWER/);

  // Refused without 100 Continue: whether the client sends the body or not, the next bytes are not a request.
  const refused = await target.open();
  refused.write(raw('POST /a//b HTTP/1.1', lines));
  assert.ok(await refused.until(() => refused.statuses.length > 0));
  refused.write(HIDDEN + FOLLOW_UP);
  await refused.rest();
  assert.doesNotMatch(refused.received, /THE HIDDEN ANSWER/);

  const odd = await target.open();
  odd.write(
    raw('POST /raw HTTP/1.1', ['Host: localhost', 'Expect: 200-ok', `Content-Length: ${n}`], HIDDEN) + FOLLOW_UP,
  );
  await odd.rest();
  assert.equal(odd.statuses[0], 417);
  assert.doesNotMatch(odd.received, /THE HIDDEN ANSWER/);
});

test('all cases at once, split into single bytes, leave nothing behind', async () => {
  await withstands(
    target,
    async () => {
      await Promise.all(
        Object.values(REFUSED).map(async (request) => {
          const wire = await target.open();
          for (const byte of request.slice(0, 120)) wire.write(byte);
          wire.write(request.slice(120) + FOLLOW_UP);
          await wire.rest();
          assert.equal(wire.statuses.length, 1, wire.received);
          assert.doesNotMatch(wire.received, /THE HIDDEN ANSWER/);
        }),
      );
    },
    { counters: ['rejected_total{reason="bad_request"}'] },
  );
});
