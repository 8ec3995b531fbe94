import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { test } from 'node:test';
import { hasBody, headerRefusal } from './header-checks.ts';
import { newHeaderView, scanHeaders } from './header-scan.ts';

/** The code of the refusal of a request with these header lines. */
function refusal(version: string, ...lines: readonly string[]): string | undefined {
  const [major, minor] = version.split('.').map(Number);
  const rawHeaders = lines.flatMap((line) => [
    line.slice(0, line.indexOf(':')),
    line.slice(line.indexOf(':') + 1).trim(),
  ]);
  const req = { httpVersion: version, httpVersionMajor: major, httpVersionMinor: minor, rawHeaders };
  const view = newHeaderView();
  scanHeaders(rawHeaders, view);
  return headerRefusal(req as IncomingMessage, view, 8)?.code;
}

test('unambiguous requests pass', () => {
  assert.equal(refusal('1.1', 'Host: a'), undefined);
  assert.equal(refusal('1.0'), undefined, 'HTTP/1.0 needs no Host');
  assert.equal(refusal('1.1', 'Host: a', 'Transfer-Encoding: chunked'), undefined);
  assert.equal(refusal('1.1', 'Host: a', 'Transfer-Encoding: Chunked'), undefined);
  assert.equal(refusal('1.1', 'Host: a', 'Content-Length: 5'), undefined);
});

test('unsupported versions are refused', () => {
  for (const version of ['0.9', '2.0']) assert.equal(refusal(version, 'Host: a'), 'bad_request', version);
});

test('a missing or repeated Host, and repeated Authorization, are refused', () => {
  assert.equal(refusal('1.1'), 'bad_request');
  assert.equal(refusal('1.1', 'Host: a', 'host: b'), 'bad_request');
  assert.equal(refusal('1.0', 'Host: a', 'Host: a'), 'bad_request');
  assert.equal(refusal('1.1', 'Host: a', 'Authorization: x', 'authorization: y'), 'bad_request');
});

test('any framing except one length or exactly chunked is refused', () => {
  for (const encoding of ['gzip, chunked', 'identity', 'xchunked', 'chunked, chunked', '']) {
    assert.equal(refusal('1.1', 'Host: a', `Transfer-Encoding: ${encoding}`), 'bad_request', encoding);
  }
  assert.equal(refusal('1.0', 'Host: a', 'Transfer-Encoding: chunked'), 'bad_request');
  assert.equal(refusal('1.1', 'Host: a', 'Transfer-Encoding: chunked', 'Content-Length: 5'), 'bad_request');
});

test('all lines of Transfer-Encoding or Content-Length are checked together', () => {
  const lines = [
    ['Transfer-Encoding: gzip', 'Transfer-Encoding: chunked'],
    ['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'],
    ['transfer-encoding: x', 'X: y', 'TRANSFER-ENCODING: chunked'],
    ['Content-Length: 5', 'content-length: 5'],
  ];
  for (const pair of lines) assert.equal(refusal('1.1', 'Host: a', ...pair), 'bad_request', pair.join());
});

test('too many header lines are refused', () => {
  const lines = Array.from({ length: 8 }, (_, i) => `X-${i}: 1`);
  assert.equal(refusal('1.1', 'Host: a', ...lines.slice(1)), undefined);
  assert.equal(refusal('1.1', 'Host: a', ...lines), 'headers_too_large');
});

test('a length other than 0 or a transfer coding announces a body', () => {
  const body = (...raw: string[]): boolean => {
    const view = newHeaderView();
    scanHeaders(raw, view);
    return hasBody(view);
  };
  assert.equal(body(), false);
  assert.equal(body('Content-Length', '0'), false);
  assert.equal(body('Content-Length', '1'), true);
  assert.equal(body('Transfer-Encoding', 'chunked'), true);
});
