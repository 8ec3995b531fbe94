/** Decompression bombs are cut at the limit, on buffered and streamed routes, alone and in numbers. */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { Readable } from 'node:stream';
import { after, before, test } from 'node:test';
import * as zlib from 'node:zlib';
import { KIB, MIB } from '@ron/testkit';
import { capability } from '../support.ts';
import { Target, withstands } from './target.ts';

let target: Target;

before(async () => {
  target = await Target.start();
});
after(() => target[Symbol.asyncDispose]());

const CODINGS = ['gzip', 'br', 'zstd'] as const;
type Coding = (typeof CODINGS)[number];

/** A gigabyte of zeros. Created once for each coding. */
const bombs = new Map<Coding, Buffer>();

async function bomb(coding: Coding): Promise<Buffer> {
  const ready = bombs.get(coding);
  if (ready !== undefined) return ready;
  const make = { gzip: zlib.createGzip, br: zlib.createBrotliCompress, zstd: zlib.createZstdCompress }[coding];
  const params = coding === 'br' ? { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } } : { level: 1 };
  const zeros = Buffer.alloc(4 * MIB);
  const encoder = Readable.from(Array.from({ length: 256 }, () => zeros)).pipe(make(params));
  const chunks: Buffer[] = [];
  for await (const chunk of encoder) chunks.push(chunk as Buffer);
  const whole = Buffer.concat(chunks);
  bombs.set(coding, whole);
  return whole;
}

interface Outcome {
  readonly status: number;
  readonly code: string | undefined;
}

/** Sends a body; the answer may arrive before all of it is sent. */
function post(method: string, path: string, coding: string, body: Buffer): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-encoding': coding, ...capability(), 'transfer-encoding': 'chunked' };
    let answered = false;
    const req = request({ host: '127.0.0.1', port: target.port, method, path, headers, agent: false }, (res) => {
      let text = '';
      answered = true;
      res.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      res.on('end', () => {
        resolve({ status: res.statusCode!, code: (JSON.parse(text) as { code?: string }).code });
        req.destroy();
      });
    });
    req.on('error', (error) => {
      if (!answered) reject(error);
    });
    for (let at = 0; at < body.length; at += 64 * KIB) req.write(body.subarray(at, at + 64 * KIB));
    req.end();
  });
}

const CAP = { status: 413, code: 'decompress_cap' };
const ROUTES = [
  ['POST', '/raw'],
  ['PUT', '/notes/bomb'],
] as const;

for (const coding of CODINGS) {
  test(`a gigabyte of zeros as ${coding} is cut at the limit`, async () => {
    const body = await bomb(coding);
    await withstands(
      target,
      async () => {
        for (const [method, path] of ROUTES) {
          const from_ms = performance.now();
          // [storage I-10] [kms I-10] [index I-10] [edge I-10] [interop I-10]
          assert.deepEqual(await post(method, path, coding, body), CAP, path);
          assert.ok(performance.now() - from_ms < 4000, 'it was cut, not decoded');
        }
      },
      { counters: ['rejected_total{reason="decompress_cap"}'], growth_bytes_max: 48 * MIB },
    );
  });
}

test('forty bombs at once: memory stays flat and others are served', async () => {
  const bodies = await Promise.all(CODINGS.map(async (coding) => [coding, await bomb(coding)] as const));
  const attack = async (): Promise<void> => {
    const all = Array.from({ length: 40 }, (_, i) => {
      const [coding, body] = bodies[i % bodies.length]!;
      const [method, path] = ROUTES[i % ROUTES.length]!;
      return post(method, path, coding, body);
    });
    for (let i = 0; i < 10; i += 1) assert.equal((await target.send('GET', '/greeting')).status, 200);
    for (const outcome of await Promise.all(all)) assert.deepEqual(outcome, CAP);
  };
  await attack();
  await withstands(target, attack, { growth_bytes_max: 64 * MIB });
});

test('nested codings are refused before anything is decoded', async () => {
  const inner = await bomb('gzip');
  const nested = zlib.gzipSync(inner);
  await withstands(
    target,
    async () => {
      for (const coding of [
        'gzip, gzip',
        'gzip,br',
        'gzip, gzip, gzip',
        'br, gzip',
        'identity, gzip',
        'gzip, identity',
      ])
        assert.deepEqual(
          await post('POST', '/raw', coding, nested),
          { status: 415, code: 'unsupported_media' },
          coding,
        );
      // One layer is decoded, and its content is ordinary bytes.
      const small = zlib.gzipSync('inner');
      const reply = await target.send('POST', '/raw', {
        body: zlib.gzipSync(small),
        headers: { 'content-encoding': 'gzip' },
      });
      assert.equal(reply.text, `{"bytes":${small.length}}`);
    },
    { counters: ['rejected_total{reason="unsupported_media"}'] },
  );
});

test('unsupported codings are 415', async () => {
  for (const coding of ['deflate', 'compress', 'lzma', '', '*', 'gzip;q=0'])
    assert.deepEqual(
      await post('POST', '/raw', coding, Buffer.from('x')),
      { status: 415, code: 'unsupported_media' },
      coding,
    );
});

test('malformed, truncated and padded bodies are 400', async () => {
  await withstands(
    target,
    async () => {
      const encoders = { gzip: zlib.gzipSync, br: zlib.brotliCompressSync, zstd: zlib.zstdCompressSync };
      for (const coding of CODINGS) {
        const good = encoders[coding](Buffer.from('a body that is long enough to be cut in the middle'));
        const broken = [
          good.subarray(0, good.length - 1),
          good.subarray(0, good.length >> 1),
          Buffer.concat([good, Buffer.from('tail')]),
          Buffer.concat([good, Buffer.alloc(100)]),
          Buffer.from('plain text'),
          Buffer.alloc(0),
        ];
        for (const [i, body] of broken.entries())
          for (const [method, path] of ROUTES)
            assert.deepEqual(
              await post(method, path, coding, body),
              { status: 400, code: 'bad_request' },
              `${coding} ${i} ${path}`,
            );
      }
    },
    { counters: ['rejected_total{reason="bad_request"}'] },
  );
});

test('a zstd frame with a window of 128 MiB is refused', async () => {
  const encoder = zlib.createZstdCompress({ params: { [zlib.constants.ZSTD_c_windowLog]: 27 } });
  encoder.write(Buffer.alloc(200_000, 'window'));
  encoder.end(Buffer.alloc(200_000, 'window'));
  const chunks: Buffer[] = [];
  for await (const chunk of encoder) chunks.push(chunk as Buffer);
  await withstands(target, async () =>
    assert.deepEqual(await post('POST', '/raw', 'zstd', Buffer.concat(chunks)), CAP),
  );
});

test('ordinary compressed bodies are read', async () => {
  const text = Buffer.from(JSON.stringify({ name: 'a'.repeat(60), tags: ['x', 'y'] }));
  for (const [coding, encode] of Object.entries({
    gzip: zlib.gzipSync,
    br: zlib.brotliCompressSync,
    zstd: zlib.zstdCompressSync,
  })) {
    const headers = { 'content-encoding': coding, 'content-type': 'application/json' };
    const reply = await target.send('POST', '/orders', { body: encode(text), headers });
    assert.equal(reply.status, 200, reply.text);
  }
});
