/** Arbitrary bytes on a socket: the service answers or closes, and leaks nothing. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { fuzzRuns } from '@ron/testkit';
import { AUTHORIZATION, Target, raw, withstands } from './target.ts';

let target: Target;

before(async () => {
  target = await Target.start(
    '--server.header_timeout=150ms',
    '--read_timeout=150ms',
    '--idle_timeout=150ms',
    '--write_timeout=2s',
  );
  await target.put('note', 'a note');
});
after(() => target[Symbol.asyncDispose]());

const REQUESTS = [
  raw('GET /notes/note HTTP/1.1'),
  raw('GET /healthz HTTP/1.1', ['Host: localhost', 'Connection: close']),
  raw(
    'POST /orders HTTP/1.1',
    ['Host: localhost', 'Content-Type: application/json', 'Content-Length: 12'],
    '{"name":"x"}',
  ),
  raw('POST /raw HTTP/1.1', ['Host: localhost', 'Transfer-Encoding: chunked'], '3\r\nabc\r\n0\r\n\r\n'),
  raw('PUT /notes/other HTTP/1.1', ['Host: localhost', AUTHORIZATION, 'Content-Length: 3'], 'abc'),
  raw('GET /notes/note HTTP/1.1', ['Host: localhost', 'Range: bytes=0-1', 'If-None-Match: "x"']),
  raw(
    'POST /raw HTTP/1.1',
    ['Host: localhost', 'Expect: 100-continue', 'Content-Encoding: gzip', 'Content-Length: 3'],
    'abc',
  ),
];

const bytes = fc.uint8Array({ maxLength: 400 }).map((data) => Buffer.from(data).toString('latin1'));
const pieces = fc
  .array(
    fc.constantFrom(
      'GET ',
      'POST ',
      '/',
      'HTTP/1.1',
      '\r\n',
      '\n',
      '\r',
      ' ',
      ':',
      'Host',
      'localhost',
      'Content-Length',
      'Transfer-Encoding',
      'chunked',
      '0',
      '1',
      'ffffffff',
      '\r\n\r\n',
      '\0',
      ';',
      ',',
    ),
    { maxLength: 60 },
  )
  .map((parts) => parts.join(''));
/** A valid request with bytes removed, doubled, inserted or reversed. */
const mutated = fc
  .tuple(
    fc.constantFrom(...REQUESTS),
    fc.nat(300),
    fc.nat(20),
    fc.constantFrom('cut', 'double', 'insert', 'flip'),
    bytes,
  )
  .map(([text, at, length, how, junk]) => {
    const i = at % text.length;
    const middle = text.slice(i, i + length);
    const instead = {
      cut: '',
      double: middle + middle,
      insert: middle + junk.slice(0, 10),
      flip: [...Buffer.from(middle, 'latin1')].map((b) => String.fromCharCode(b ^ 0x20)).join(''),
    }[how];
    return text.slice(0, i) + instead + text.slice(i + length);
  });

test('any input is answered as HTTP or the connection ends', async () => {
  const input = fc.array(fc.oneof(bytes, pieces, mutated, mutated, fc.constantFrom(...REQUESTS)), {
    minLength: 1,
    maxLength: 4,
  });
  const counters = ['rejected_total{reason="bad_request"}'];
  await withstands(
    target,
    () =>
      fc.assert(
        fc.asyncProperty(
          fc.array(input, { minLength: 8, maxLength: 8 }),
          fc.boolean(),
          async (conversations, half_close) => {
            await Promise.all(
              conversations.map(async (parts) => {
                const wire = await target.open();
                for (const part of parts) {
                  wire.write(part);
                  await new Promise((resolve) => setImmediate(resolve));
                }
                if (half_close) wire.socket.end();
                await wire.rest();
                if (wire.received !== '') assert.match(wire.received, /^HTTP\/1\.1 [1-5]\d\d /);
                assert.doesNotMatch(wire.received, /HTTP\/1\.1 5\d\d /, 'a defect of the service');
              }),
            );
            assert.ok(target.up);
          },
        ),
        fuzzRuns(40),
      ),
    { counters, growth_bytes_max: 96 * 1024 * 1024 },
  );
  assert.equal((await target.send('GET', '/notes/note')).text, 'a note');
});

test('connections that close at once leak nothing', async () => {
  await withstands(target, async () => {
    for (let round = 0; round < 10; round += 1) {
      const wires = await Promise.all(Array.from({ length: 50 }, () => target.open()));
      for (const [i, wire] of wires.entries()) {
        if (i % 3 === 0) wire.write(REQUESTS[i % REQUESTS.length]!);
        if (i % 3 === 1) wire.write(REQUESTS[i % REQUESTS.length]!.slice(0, 20));
        if (i % 2 === 0) wire.socket.resetAndDestroy();
        else wire.destroy();
      }
    }
  });
});
