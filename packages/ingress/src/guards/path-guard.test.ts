import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fuzzRuns } from '@ron/testkit';
import { assertLinearTime } from '../../test/linear-time.ts';
import { pathGuard } from './path-guard.ts';

const guard = pathGuard({ target_bytes_max: 256, encoded_slash_prefixes: ['/keys/'] });

const FINE = [
  '/',
  '/o/b3:00ff',
  '/o/',
  '/a.b/..c/c../...',
  '/.well-known/x',
  '/a?b=//../&c=.%2e/%2F\\',
  '/a?b=100%25',
  '/a?',
  '/a??',
  '/caf%C3%A9',
  '/%F0%9F%98%80',
  '/a%20b',
  '/a%2Eb',
  '/a;b=..',
  '/keys/tenant%2Fsign%2Fed25519%2F0a-1b%23v1',
  '/keys/tenant%2fsign%23v1/rotate?x=1',
  '/a%23b',
  '/100%25',
  '/a%3F',
  '/...',
];

const REFUSED = [
  '',
  'http://evil/',
  'HTTP://evil/',
  'evil:80',
  '*',
  'a',
  '?a',
  '\\a',
  '//',
  '//evil',
  '/a//b',
  '/a//',
  '/.',
  '/..',
  '/./a',
  '/../a',
  '/a/..',
  '/a/.',
  '/a/../b',
  '/a/..?x',
  '/%2e%2e/a',
  '/%2E./a',
  '/.%2e',
  '/%2e',
  '/a/%2e%2E?x',
  '/..;/a',
  '/..;x=y/a',
  '/.;/a',
  '/%2e%2e;/a',
  '/a\\..\\b',
  '/a%5cb',
  '/a%5C..',
  '/a%00b',
  '/a?b=%00',
  '/a%0d%0aX:%20y',
  '/a%7f',
  '/a\u0000',
  '/a\u007f',
  '/a b',
  '/a\tb',
  '/caf\u00e9',
  '/a?\u00ff',
  '/a#b',
  '/a?b#c',
  '/%',
  '/%2',
  '/%zz',
  '/%u002e',
  '/a?b=%',
  '/a%2Fb',
  '/a%2f..%2fb',
  '/keys%2Fx',
  '/keys/a%2F..%2Fb',
  '/keys/%2e%2e%2Fb',
  '/keys/a%2F%2Fb',
  '/keys/%2Fb',
  '/keys/a%2F.',
  '/keys/a%5cb',
  '/%252e%252e/a',
  '/keys/a%252Fb',
  '/%c0%ae%c0%ae/a',
  '/%c0%af',
  '/%e0%80%af',
  '/%f0%80%80%af',
  '/%ed%a0%80',
  '/%f4%90%80%80',
  '/%ff',
  '/%80',
  '/%c3',
  '/%c3a',
  '/%c3%',
];

test('unambiguous targets pass', () => {
  for (const target of FINE) assert.equal(guard(target)?.message, undefined, target);
});

test('ambiguous targets are bad_path', () => {
  for (const target of REFUSED) assert.equal(guard(target)?.code, 'bad_path', JSON.stringify(target));
  assert.equal(guard(undefined)?.code, 'bad_path');
});

test('one byte over the limit is uri_too_long without a scan', () => {
  assert.equal(guard(`/${'a'.repeat(255)}`), undefined);
  assert.equal(guard(`/${'a'.repeat(256)}`)?.code, 'uri_too_long');
  assert.equal(guard(`/../${'a'.repeat(256)}`)?.code, 'uri_too_long');
});

test('a target that passes is safe after decoding it once or twice', () => {
  const piece = fc.constantFrom(
    '/',
    '.',
    '..',
    '%2e',
    '%2E',
    '%2f',
    '%2F',
    '\\',
    '%5c',
    '%00',
    'a',
    '%',
    '%25',
    '25',
    '2e',
    '2f',
    '?',
    '#',
    ';',
    '%c0',
    '%ae',
    '%c3',
    '%a9',
    ' ',
    '\u00e9',
    'keys/',
  );
  const target = fc.oneof(
    fc.array(piece, { maxLength: 12 }).map((parts) => `/${parts.join('')}`),
    fc.string({ unit: 'binary' }).map((s) => `/${s}`),
  );
  fc.assert(
    fc.property(target, (text) => {
      if (guard(text) !== undefined) return;
      const path = text.split('?')[0]!;
      const decoded = decodeURIComponent(path); // Throws if it is not UTF-8, which fails the test.
      for (const char of decoded) assert.ok(char > '\u001f' && char !== '\u007f' && char !== '\\', text);
      if (!path.startsWith('/keys/')) assert.equal(decoded.split('/').length, path.split('/').length, text);
      for (const segment of decoded.split('/')) assert.ok(segment !== '.' && segment !== '..', text);
      assert.ok(!decoded.includes('//'), text);
      assert.equal(new URL(text, 'http://h').pathname, path, 'a URL parser does not change it');
    }),
    fuzzRuns(5000),
  );
});

test('time is linear in the length', () => {
  const wide = pathGuard({ target_bytes_max: 1e8, encoded_slash_prefixes: ['/keys/'] });
  assertLinearTime((length) => {
    for (const piece of ['a', '.', '%2e', 'a/', '%C3%A9', 'a;', '%25', 'a%2F'])
      wide(`/keys/${piece.repeat(length / piece.length)}`);
  });
});
