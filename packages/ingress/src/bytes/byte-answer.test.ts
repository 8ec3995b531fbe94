import assert from 'node:assert/strict';
import { test } from 'node:test';
import { byteAnswer, byteHead } from './byte-answer.ts';
import type { ByteDescription } from './byte-answer.ts';

const source: ByteDescription = {
  size: 10,
  etag: '"a"',
  media_type: 'text/plain',
  headers: {
    'Cache-Control': 'no-cache',
    Vary: 'Accept-Encoding',
    'Content-Language': 'en',
    'Content-Security-Policy': 'sandbox',
  },
};

function headOf(
  source_: ByteDescription,
  method: string,
  headers: Record<string, string>,
  extra?: Record<string, string>,
): Record<string, string> {
  const answer = byteAnswer(method, headers, source_);
  assert.ok(!('error' in answer));
  const flat = byteHead(source_, answer, extra);
  const names = flat.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase());
  assert.equal(new Set(names).size, names.length, `a header occurs twice: ${names.join()}`);
  return Object.fromEntries(names.map((name, i) => [name, flat[i * 2 + 1]!]));
}

test('200, 206, 304, 412, 416 by method and headers', () => {
  const status = (method: string, headers: Record<string, string>): number =>
    byteAnswer(method, headers, source).status;
  assert.equal(status('GET', {}), 200);
  assert.equal(status('HEAD', {}), 200);
  assert.equal(status('GET', { range: 'bytes=0-1' }), 206);
  assert.equal(status('GET', { range: 'bytes=0-1,3-4' }), 200);
  assert.equal(status('GET', { range: 'pages=1' }), 200);
  assert.equal(status('GET', { range: 'bytes=10-' }), 416);
  assert.equal(status('HEAD', { range: 'bytes=0-1' }), 200);
  assert.equal(status('HEAD', { range: 'bytes=10-' }), 200);
  assert.equal(status('GET', { range: 'bytes=0-1', 'if-range': '"a"' }), 206);
  assert.equal(status('GET', { range: 'bytes=0-1', 'if-range': '"b"' }), 200);
  assert.equal(status('GET', { range: 'bytes=10-', 'if-range': '"b"' }), 200);
  assert.equal(status('GET', { range: 'bytes=10-', 'if-none-match': '"a"' }), 304);
  assert.equal(status('GET', { range: 'bytes=10-', 'if-match': '"b"' }), 412);
  assert.equal(status('HEAD', { 'if-match': '"b"' }), 412);
});

test('the head of a 200 and a 206', () => {
  assert.deepEqual(headOf(source, 'GET', {}), {
    'content-type': 'text/plain',
    'content-length': '10',
    etag: '"a"',
    'accept-ranges': 'bytes',
    'cache-control': 'no-cache',
    vary: 'Accept-Encoding',
    'content-language': 'en',
    'content-security-policy': 'sandbox',
  });
  const part = headOf(source, 'GET', { range: 'bytes=2-4' });
  assert.equal(part['content-length'], '3');
  assert.equal(part['content-range'], 'bytes 2-4/10');
});

test('a 304 has the headers of the 200, except those that describe the body', () => {
  assert.deepEqual(headOf({ ...source, last_modified_ms: 0 }, 'GET', { 'if-none-match': '"a"' }), {
    etag: '"a"',
    'accept-ranges': 'bytes',
    'cache-control': 'no-cache',
    vary: 'Accept-Encoding',
    'content-security-policy': 'sandbox',
  });
});

test('the caller overrides a header of the source, in any case, and no header is repeated', () => {
  assert.equal(headOf(source, 'GET', {}, { 'cache-control': 'no-store' })['cache-control'], 'no-store');
});

test('Last-Modified is an HTTP-date', () => {
  const ms = Date.UTC(1994, 10, 6, 8, 49, 37);
  assert.equal(
    headOf({ ...source, last_modified_ms: ms }, 'GET', {})['last-modified'],
    'Sun, 06 Nov 1994 08:49:37 GMT',
  );
});
