import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import * as zlib from 'node:zlib';
import fc from 'fast-check';
import { fuzzRuns } from '@ron/testkit';
import { decodeBody } from './decode-body.ts';
import type { DecodeInit } from './decode-body.ts';
import { RonError } from '@ron/kernel';
import type { ErrorCode } from '@ron/kernel';

const MIB = 1024 * 1024;
const never = new AbortController().signal;
const CODECS = {
  gzip: (data: Uint8Array) => zlib.gzipSync(data),
  br: (data: Uint8Array) => zlib.brotliCompressSync(data, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } }),
  zstd: (data: Uint8Array) => zlib.zstdCompressSync(data),
};
type Coding = keyof typeof CODECS;
const CODINGS = Object.keys(CODECS) as Coding[];

/** Pushes `data` in pieces of `size` bytes. */
function sourceOf(data: Uint8Array, size = 4096): Readable {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < data.length; at += size) pieces.push(data.subarray(at, at + size));
  return Readable.from(pieces, { objectMode: false });
}

async function decode(
  data: Uint8Array,
  coding: string,
  init: Partial<DecodeInit> = {},
  size?: number,
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of decodeBody(sourceOf(data, size), coding, { signal: never, ...init }))
    chunks.push(chunk as Uint8Array);
  return Buffer.concat(chunks);
}

function refused(promise: Promise<unknown>, code: ErrorCode, hint?: string): Promise<void> {
  return assert.rejects(promise, (error) => {
    assert.ok(error instanceof RonError, `${hint}: ${String(error)}`);
    assert.equal(error.code, code, hint ?? error.message);
    return true;
  });
}

/** Bytes that do not compress, so that the ratio is about one. */
function noise(length: number): Buffer {
  const data = Buffer.alloc(length);
  for (let i = 0, x = 1; i < length; i += 1) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    data[i] = x >>> 24;
  }
  return data;
}

test('decoding restores the input, however the bytes are cut', async () => {
  const coding = fc.constantFrom(...CODINGS);
  await fc.assert(
    fc.asyncProperty(
      coding,
      fc.uint8Array({ maxLength: 3000 }),
      fc.integer({ min: 1, max: 50 }),
      async (name, data, size) => {
        assert.deepEqual(await decode(CODECS[name](data), name, {}, size), Buffer.from(data));
      },
    ),
    fuzzRuns(60),
  );
  for (const name of CODINGS)
    assert.ok((await decode(CODECS[name](noise(3 * MIB)), name)).equals(noise(3 * MIB)), name);
});

test('the name of a coding is read in any case; x-gzip is gzip; identity and none are the source itself', async () => {
  const data = Buffer.from('hello');
  assert.deepEqual(await decode(CODECS.gzip(data), ' GZip '), data);
  assert.deepEqual(await decode(CODECS.gzip(data), 'x-gzip'), data);
  const source = sourceOf(data);
  assert.equal(decodeBody(source, undefined, { signal: never }), source);
  assert.equal(decodeBody(source, 'identity', { signal: never }), source);
});

test('any other coding, and more than one, is unsupported_media before anything is read', () => {
  for (const coding of [
    'deflate',
    'compress',
    'gzip, gzip',
    'gzip,br',
    'gzip, identity',
    'br,',
    ',gzip',
    '',
    '*',
    'gz ip',
    'toString',
    '__proto__',
    'gzip;q=1',
  ]) {
    const source = sourceOf(Buffer.from('x'));
    assert.throws(
      () => decodeBody(source, coding, { signal: never }),
      (error) => error instanceof RonError && error.code === 'unsupported_media',
      coding,
    );
    assert.equal(source.readableDidRead, false);
  }
});

test('truncated, empty, corrupt and trailing input is bad_request', async () => {
  for (const name of CODINGS) {
    const whole = CODECS[name](noise(500));
    for (const size of [1, 7, 4096]) {
      for (const cut of [0, 1, 4, 10, whole.length >> 1, whole.length - 1])
        await refused(decode(whole.subarray(0, cut), name, {}, size), 'bad_request', `${name} cut at ${cut}`);
      for (const tail of ['garbage', '\0', '\0\0\0\0\0\0\0\0\0', '\x1f', '\x28\xb5'])
        await refused(
          decode(Buffer.concat([whole, Buffer.from(tail, 'latin1')]), name, {}, size),
          'bad_request',
          `${name} + ${JSON.stringify(tail)}`,
        );
      await refused(decode(Buffer.from('this is plain text, not compressed'), name, {}, size), 'bad_request', name);
    }
  }
});

test('members in a row are one gzip body, frames in a row one zstd body', async () => {
  const a = Buffer.from('first ');
  const b = Buffer.from('second');
  for (const name of ['gzip', 'zstd'] as const)
    for (const size of [1, 4096])
      assert.equal(
        String(await decode(Buffer.concat([CODECS[name](a), CODECS[name](b)]), name, {}, size)),
        'first second',
      );
});

test('the size cap is exact: one byte more is refused', async () => {
  for (const name of CODINGS) {
    const fits = noise(100_000);
    assert.equal((await decode(CODECS[name](fits), name, { bytes_max: 100_000 })).length, 100_000);
    await refused(decode(CODECS[name](noise(100_001)), name, { bytes_max: 100_000 }), 'decompress_cap', name);
  }
});

test('a small body passes at any ratio, a larger one is refused by its ratio', async () => {
  for (const name of CODINGS) {
    assert.equal((await decode(CODECS[name](Buffer.alloc(64 * 1024)), name)).length, 64 * 1024);
    await refused(decode(CODECS[name](Buffer.alloc(64 * 1024 + 1)), name), 'decompress_cap', name);
    // The same zeros pass when enough other bytes came before them.
    const mixed = Buffer.concat([noise(20_000), Buffer.alloc(100_000)]);
    assert.equal((await decode(CODECS[name](mixed), name)).length, mixed.length);
  }
});

/** A gigabyte of zeros, encoded piece by piece; `produced()` says how much of it the reader made us encode. */
function bomb(name: Coding): { stream: Readable; produced: () => number } {
  const make = { gzip: zlib.createGzip, br: zlib.createBrotliCompress, zstd: zlib.createZstdCompress }[name];
  let zeros = 0;
  const plain = new Readable({
    read() {
      zeros += MIB;
      this.push(zeros > 1024 * MIB ? null : Buffer.alloc(MIB));
    },
  });
  const params = name === 'br' ? { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } } : {};
  const encoder = make(params);
  return { stream: plain.pipe(encoder), produced: () => zeros };
}

test('a gigabyte bomb is cut at the cap, not after, and memory stays flat', async () => {
  for (const name of CODINGS) {
    // The ratio is unlimited, so that the size cap takes effect.
    for (const init of [{ ratio_max: 1e9, bytes_max: 10 * MIB }, {}]) {
      const { stream, produced } = bomb(name);
      const before_bytes = process.memoryUsage().rss;
      let decoded_bytes = 0;
      let rss_bytes_max = 0;
      const body = decodeBody(stream, name, { signal: never, ...init });
      await refused(
        (async () => {
          for await (const chunk of body) {
            decoded_bytes += (chunk as Uint8Array).length;
            assert.ok((chunk as Uint8Array).length <= 16 * 1024);
            rss_bytes_max = Math.max(rss_bytes_max, process.memoryUsage().rss);
          }
        })(),
        'decompress_cap',
        name,
      );
      const cap = 'bytes_max' in init ? 10 * MIB : 64 * 1024;
      assert.ok(decoded_bytes <= cap, `${name}: handed on ${decoded_bytes}`);
      assert.ok(
        'bytes_max' in init ? decoded_bytes > cap - 17 * 1024 : true,
        `${name}: cut too early, at ${decoded_bytes}`,
      );
      if (name !== 'zstd') assert.ok(produced() < 1024 * MIB, `${name}: the source was drained`); // All of it is 32 KiB of zstd.
      assert.ok(rss_bytes_max - before_bytes < 96 * MIB, `${name}: grew by ${rss_bytes_max - before_bytes}`);
      assert.equal(stream.destroyed, false, 'the source is left to its owner');
      stream.destroy();
    }
  }
});

test('a reader that stops holds a bounded amount, and the codec stops with it', async () => {
  for (const name of CODINGS) {
    // Zeros: the encoded form is tiny, so nothing but our own back-pressure keeps the codec from making all of it.
    const encoded = CODECS[name](Buffer.alloc(32 * MIB));
    const body = decodeBody(sourceOf(encoded), name, { signal: never, ratio_max: 1e9, bytes_max: 2 ** 40 });
    let pushed = 0;
    const push = body.push.bind(body);
    body.push = (chunk: Uint8Array | null) => ((pushed += chunk?.length ?? 0), push(chunk));
    body.read(0);
    for (let last = -1; last !== pushed || last === 0;) {
      last = pushed;
      await new Promise((resolve) => void setTimeout(resolve, 30));
    }
    assert.ok(pushed <= 3 * 16 * 1024, `${name} made ${pushed} bytes ahead of the reader`);
    body.destroy();
  }
});

test('a zstd frame that asks for a large window is refused before it is given one', async () => {
  const params = { [zlib.constants.ZSTD_c_windowLog]: 27, [zlib.constants.ZSTD_c_compressionLevel]: 1 };
  const encoder = zlib.createZstdCompress({ params });
  encoder.write(noise(300_000));
  encoder.end(noise(300_000));
  const chunks: Buffer[] = [];
  for await (const chunk of encoder) chunks.push(chunk as Buffer);
  await refused(decode(Buffer.concat(chunks), 'zstd'), 'decompress_cap');
});

test('abort ends it with the reason; a source that breaks off is bad_request', async () => {
  const controller = new AbortController();
  const source = new Readable({ read() {} });
  source.push(CODECS.gzip(noise(100_000)).subarray(0, 50_000));
  const body = decodeBody(source, 'gzip', { signal: controller.signal });
  const reading = (async () => {
    for await (const chunk of body) assert.ok(chunk);
  })();
  controller.abort(new RonError('timeout', 'too late'));
  await refused(reading, 'timeout');
  assert.equal(source.destroyed, false);

  const broken = new Readable({ read() {} });
  const cut = decodeBody(broken, 'gzip', { signal: never });
  const waiting = (async () => {
    for await (const chunk of cut) assert.ok(chunk);
  })();
  broken.destroy();
  await refused(waiting, 'bad_request');

  const aborted = decodeBody(sourceOf(CODECS.gzip(noise(10))), 'gzip', {
    signal: AbortSignal.abort(new RonError('canceled', 'x')),
  });
  await refused(aborted.toArray(), 'canceled');
});

test('listeners on a long-lived signal and source do not pile up', async () => {
  const controller = new AbortController();
  let added = 0;
  const { signal } = controller;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => ((added += 1), add(...args));
  signal.removeEventListener = (...args: Parameters<typeof remove>) => ((added -= 1), remove(...args));
  for (let i = 0; i < 5; i += 1) await decode(CODECS.gzip(noise(10)), 'gzip', { signal });
  await refused(decode(Buffer.from('junk'), 'gzip', { signal }), 'bad_request');
  assert.equal(added, 0);
});

test('arbitrary bytes under any coding decode or fail with a RonError', async () => {
  const magic = fc.constantFrom<number[]>([], [0x1f, 0x8b, 8], [0x28, 0xb5, 0x2f, 0xfd], [0x0b], [0x5b, 0x00, 0x80]);
  const bytes = fc
    .tuple(magic, fc.uint8Array({ maxLength: 200 }))
    .map(([head, rest]) => Uint8Array.from([...head, ...rest]));
  const flipped = fc.tuple(fc.constantFrom(...CODINGS), fc.nat(60), fc.nat(255)).map(([name, at, value]) => {
    const data = CODECS[name](Buffer.from('a body that is longer than sixty bytes, to be broken somewhere in it'));
    data[at % data.length] = value;
    return new Uint8Array(data);
  });
  await fc.assert(
    fc.asyncProperty(
      fc.oneof(bytes, flipped),
      fc.constantFrom(...CODINGS),
      fc.integer({ min: 1, max: 300 }),
      async (data, name, size) => {
        try {
          const out = await decode(data, name, { bytes_max: 100_000 }, size);
          assert.ok(out.length <= 100_000);
        } catch (error) {
          if (!(error instanceof RonError)) throw error;
        }
      },
    ),
    fuzzRuns(300),
  );
});
