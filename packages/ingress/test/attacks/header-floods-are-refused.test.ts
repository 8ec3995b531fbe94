/** Endless headers, in number, size or trailers, and endless chunk extensions are refused. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { KIB, MIB } from '@ron/testkit';
import { AUTHORIZATION, Target, Wire, raw, withstands } from './target.ts';

let target: Target;

before(async () => {
  target = await Target.start('--server.header_timeout=5s');
});
after(() => target[Symbol.asyncDispose]());

const TOO_LARGE = { counters: ['rejected_total{reason="headers_too_large"}'], growth_bytes_max: 48 * MIB };

async function exchange(text: string): Promise<Wire> {
  const wire = await target.open();
  wire.write(text);
  await wire.rest();
  return wire;
}

function assertRefused(wire: Wire, status: number, code: string): void {
  assert.deepEqual(wire.statuses, [status], wire.received.slice(0, 200));
  assert.match(wire.received, new RegExp(`"code":"${code}"`));
  assert.match(wire.received, /^content-type: application\/problem\+json\r$/im);
  assert.match(wire.received, /^connection: close\r$/im);
}

test('too many header lines, and too many bytes of them, are 431', async () => {
  await withstands(
    target,
    async () => {
      const many = Array.from({ length: 300 }, (_, i) => `x${i}: 1`);
      const wire = await target.open();
      wire.write(raw('GET /greeting HTTP/1.1', ['Host: localhost', ...many]));
      await wire.until(() => wire.received.includes('headers_too_large'));
      // [storage I-10] [kms I-10] [index I-10] [edge I-10] [interop I-10]
      assert.deepEqual(wire.statuses, [431]);
      wire.destroy();
      const large = [
        raw('GET /greeting HTTP/1.1', ['Host: localhost', `X: ${'a'.repeat(17 * KIB)}`]),
        raw('GET /greeting HTTP/1.1', ['Host: localhost', `${'a'.repeat(17 * KIB)}: x`]),
        raw('GET /greeting HTTP/1.1', [
          'Host: localhost',
          ...Array.from({ length: 1000 }, (_, i) => `x${i}: ${'a'.repeat(20)}`),
        ]),
        raw(`GET /${'a'.repeat(17 * KIB)} HTTP/1.1`),
      ];
      for (const request of large) assertRefused(await exchange(request), 431, 'headers_too_large');
    },
    TOO_LARGE,
  );
});

test('exactly the limits pass', async () => {
  const many = Array.from({ length: 127 }, (_, i) => `x${i}: 1`);
  const wire = await target.open();
  wire.write(raw('GET /greeting HTTP/1.1', ['Host: localhost', ...many]));
  assert.ok(await wire.until(() => wire.received.includes('hello')), wire.received);
  wire.destroy();
});

test('an endless header line is refused at the limit, while it is still being sent', async () => {
  const flood = async (start: string): Promise<void> => {
    const wire = await target.open();
    wire.write(start);
    let sent_bytes = 0;
    while (!wire.closed && sent_bytes < 64 * MIB) {
      sent_bytes += 64 * KIB;
      wire.write('a'.repeat(64 * KIB));
      await wire.until(() => wire.closed || wire.socket.writableLength === 0, 20);
    }
    assert.ok(wire.closed, 'it never ended');
    assert.ok(sent_bytes < 16 * MIB, `${sent_bytes} bytes were taken`);
    assert.ok(wire.received === '' || wire.received.startsWith('HTTP/1.1 431'), wire.received.slice(0, 100));
  };
  await withstands(
    target,
    async () => {
      const starts = ['GET /greeting HTTP/1.1\r\nHost: localhost\r\nX: ', 'GET /', 'GET /greeting HTTP/1.1\r\nX'];
      await Promise.all([...starts, ...starts, ...starts].map(flood));
    },
    TOO_LARGE,
  );
});

const CHUNKED = ['Host: localhost', AUTHORIZATION, 'Transfer-Encoding: chunked'];

test('endless chunk extensions are 413, a short one is accepted', async () => {
  const fine = await target.open();
  fine.write(raw('POST /raw HTTP/1.1', CHUNKED, '5;name=value\r\nhello\r\n0\r\n\r\n'));
  assert.ok(await fine.until(() => fine.received.includes('"bytes":5')), fine.received);
  fine.destroy();
  await withstands(
    target,
    async () => {
      const extension = `5;${'a'.repeat(20 * KIB)}\r\nhello\r\n`;
      assertRefused(
        await exchange(raw('POST /raw HTTP/1.1', CHUNKED, `${extension}0\r\n\r\n`)),
        413,
        'payload_too_large',
      );
      assertRefused(
        await exchange(raw('PUT /notes/x HTTP/1.1', CHUNKED, `${extension}0\r\n\r\n`)),
        413,
        'payload_too_large',
      );
    },
    { counters: ['rejected_total{reason="payload_too_large"}'] },
  );
});

test('endless trailers are refused, a few are accepted', async () => {
  const fine = await target.open();
  fine.write(raw('POST /raw HTTP/1.1', CHUNKED, '5\r\nhello\r\n0\r\nX-After: 1\r\n\r\n'));
  assert.ok(await fine.until(() => fine.received.includes('"bytes":5')), fine.received);
  fine.destroy();
  await withstands(target, async () => {
    const wire = await exchange(
      raw('POST /raw HTTP/1.1', CHUNKED, `5\r\nhello\r\n0\r\n${`x: ${'a'.repeat(100)}\r\n`.repeat(5000)}`),
    );
    assert.ok(wire.statuses.length === 1 && wire.statuses[0]! >= 400, wire.received.slice(0, 200));
  });
});

test('empty chunks, tiny chunks and leading zeros do not block the service', async () => {
  await withstands(target, async () => {
    const tiny = await target.open();
    tiny.write(raw('POST /raw HTTP/1.1', CHUNKED, `${'1\r\nx\r\n'.repeat(100_000)}0\r\n\r\n`));
    assert.ok(await tiny.until(() => tiny.received.includes('"bytes":100000')), tiny.received.slice(0, 200));
    tiny.destroy();
    const zeros = await target.open();
    zeros.write(raw('POST /raw HTTP/1.1', CHUNKED, `${'0'.repeat(MIB)}1\r\nx\r\n0\r\n\r\n`));
    await zeros.until(() => zeros.statuses.length > 0);
    assert.equal(zeros.statuses.length, 1);
  });
});

test('a buffered body over its limit is refused while it is still being sent, declared or not', async () => {
  await withstands(
    target,
    async () => {
      assertRefused(
        await exchange(raw('POST /raw HTTP/1.1', ['Host: localhost', `Content-Length: ${2 * MIB}`])),
        413,
        'payload_too_large',
      );
      const wire = await target.open();
      wire.write(raw('POST /raw HTTP/1.1', CHUNKED));
      const chunk = `10000\r\n${'a'.repeat(64 * KIB)}\r\n`;
      let sent_bytes = 0;
      while (!wire.closed && sent_bytes < 64 * MIB) {
        sent_bytes += chunk.length;
        wire.write(chunk);
        await wire.until(() => wire.closed || wire.socket.writableLength === 0, 20);
      }
      assert.ok(sent_bytes < 16 * MIB, `${sent_bytes} bytes were taken`);
      // A client that keeps sending after the answer may lose it to the following reset.
      assert.match(wire.received, /^(?:$|HTTP\/1\.1 413 )/);
    },
    { counters: ['rejected_total{reason="payload_too_large"}'], growth_bytes_max: 48 * MIB },
  );
});
