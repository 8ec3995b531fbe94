/** Exactly the files of the table are served, compressed and cached by their hash. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { createIngress, StaticFiles } from '@ron/ingress';
import type { Ingress } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { RawClient, send } from '@ron/testkit/service';
import type { Reply } from '@ron/testkit/service';

const SCRIPT = 'export const answer = 42; // a line that repeats itself\n'.repeat(100);
const PIXEL = Buffer.from('89504e470d0a1a0a', 'hex');
const signal = new AbortController().signal;

const prepare = (): Promise<StaticFiles> =>
  StaticFiles.prepare({
    prefix: '/assets/',
    files: {
      '/': { body: '<!doctype html><title>console</title>', media_type: 'text/html', headers: { 'X-Page': 'yes' } },
      'lib/app.js': { body: SCRIPT, media_type: 'text/javascript', hashed: true },
      'pixel.png': { body: PIXEL, media_type: 'image/png' },
    },
    signal,
  });

interface Console {
  readonly url: string;
  /** The path of the hashed script. */
  readonly script: string;
}

/** Serves the files for the tests of a suite. */
function serveFiles(with_fast: boolean): Console {
  let ingress: Ingress;
  let files: StaticFiles;

  before(async () => {
    files = await prepare();
    const metrics = new Metrics('console');
    const base = { service: 'console', version: '0', metrics, routes: files.routes() };
    ingress = await createIngress(with_fast ? { ...base, fast: files } : base);
    await ingress.listen();
  });
  after(() => ingress[Symbol.asyncDispose]());
  return {
    get url() {
      return ingress.url;
    },
    get script() {
      return files.pathOf('lib/app.js');
    },
  };
}

type Get = (path: string, headers?: Readonly<Record<string, string>>) => Promise<Reply>;

function cacheTests(served: Console, get: Get): void {
  test('each coding has its bytes, its own strong tag and Vary', async () => {
    const plain = await get(served.script);
    const gzip = await get(served.script, { 'accept-encoding': 'gzip' });
    const br = await get(served.script, { 'accept-encoding': 'gzip, deflate, br' });
    assert.equal(plain.text, SCRIPT);
    assert.equal(gunzipSync(gzip.body).toString(), SCRIPT);
    assert.equal(brotliDecompressSync(br.body).toString(), SCRIPT);
    assert.equal(gzip.headers['content-encoding'], 'gzip');
    assert.equal(br.headers['content-encoding'], 'br');
    const tags = [plain, gzip, br].map(({ headers }) => headers.etag!);
    assert.equal(new Set(tags).size, 3);
    for (const { headers } of [plain, gzip, br]) {
      assert.match(headers.etag!, /^"[\w-]{22}"$/);
      assert.equal(headers.vary, 'Accept-Encoding');
      assert.equal(headers['content-type'], 'text/javascript');
    }
    assert.equal((await get(served.script, { 'accept-encoding': 'gzip', 'if-none-match': tags[1]! })).status, 304);
    assert.equal((await get(served.script, { 'accept-encoding': 'gzip', 'if-none-match': tags[0]! })).status, 200);
  });

  test('a hashed file is immutable, others are revalidated', async () => {
    assert.match(served.script, /^\/assets\/[\w-]{22}\/lib\/app\.js$/);
    assert.equal((await get(served.script)).headers['cache-control'], 'public, max-age=31536000, immutable');
    const page = await get('/');
    assert.equal(page.headers['cache-control'], 'no-cache');
    assert.equal(page.headers['x-page'], 'yes');
  });

  test('a file that does not shrink is not negotiated', async () => {
    const reply = await get('/assets/pixel.png', { 'accept-encoding': 'br, gzip' });
    assert.deepEqual(reply.body, PIXEL);
    assert.equal(reply.headers['content-encoding'], undefined);
    assert.equal(reply.headers.vary, undefined);
  });
}

function pathTests(served: Console, get: Get): void {
  test('nothing outside the table is served', async () => {
    for (const path of [
      '/assets/',
      '/assets/app.js',
      '/assets/lib/app.js',
      '/assets/__proto__',
      '/assets/constructor',
      `${served.script}/`,
      served.script.replace('lib/', 'lib%2F'),
      '/assets/../static-files.ts',
      '/assets/..%2f..%2fetc%2fpasswd',
      '/assets/%2e%2e/package.json',
      '//assets/pixel.png',
      '/assets/pixel.png%00',
    ]) {
      const client = await RawClient.open(Number(new URL(served.url).port));
      client.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
      const status = Number((await client.rest()).split(' ')[1]);
      assert.ok(status === 404 || status === 400, `${path}: ${status}`);
    }
  });

  test('a query, HEAD and a range are answered as for any bytes', async () => {
    assert.equal((await get(`${served.script}?v=1`)).text, SCRIPT);
    assert.equal((await send(served.url, 'HEAD', served.script)).headers['content-length'], String(SCRIPT.length));
    assert.equal((await get(served.script, { range: 'bytes=0-5' })).text, 'export');
  });
}

for (const with_fast of [true, false])
  describe(with_fast ? 'by the fast path' : 'routed', () => {
    const served = serveFiles(with_fast);
    const get: Get = (path, headers = {}) => send(served.url, 'GET', path, { headers });
    cacheTests(served, get);
    pathTests(served, get);
  });

test('invalid names, and tables beyond the bounds, are refused', async () => {
  const file = { body: '', media_type: 'text/plain' };
  for (const name of ['../a', 'a/../b', 'a//b', '.a', 'a b', 'a%2f', 'a?b'])
    await assert.rejects(StaticFiles.prepare({ prefix: '/', files: { [name]: file }, signal }), /plain segments/, name);
  const many = Object.fromEntries(Array.from({ length: 4097 }, (_, index) => [`f${index}`, file]));
  await assert.rejects(StaticFiles.prepare({ prefix: '/', files: many, signal }), /4096/);
  const large = { ...file, body: Buffer.alloc(64 * 1024 * 1024 + 1), media_type: 'image/png' };
  await assert.rejects(StaticFiles.prepare({ prefix: '/', files: { large }, signal }), /bytes of static files/);
});

test('the preparation can be cancelled', async () => {
  const files = { a: { body: '', media_type: 'text/plain' } };
  await assert.rejects(
    StaticFiles.prepare({ prefix: '/', files, signal: AbortSignal.abort(new Error('stop')) }),
    /stop/,
  );
});
