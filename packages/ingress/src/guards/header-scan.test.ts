import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { newHeaderView, scanHeaders, valuesOf } from './header-scan.ts';

const NAMES = [
  'host',
  'x-corr-id',
  'authorization',
  'if-none-match',
  'range',
  'if-range',
  'if-match',
  'if-modified-since',
  'if-unmodified-since',
  'content-length',
  'transfer-encoding',
  'expect',
  'accept',
  'user-agent',
  'x-forwarded-for',
];
const CONDITIONAL = new Set(['range', 'if-range', 'if-match', 'if-modified-since', 'if-unmodified-since']);

/** The same text with some letters in upper case. */
const anyCase = (name: string, bits: number): string =>
  name
    .split('')
    .map((letter, i) => ((bits >> (i % 31)) & 1 ? letter.toUpperCase() : letter))
    .join('');

test('finds known headers in any case, counts unique ones, and resets the previous request', () => {
  const view = newHeaderView();
  const header = fc.tuple(fc.constantFrom(...NAMES), fc.nat(), fc.string({ maxLength: 8 }));
  fc.assert(
    fc.property(fc.array(header, { maxLength: 20 }), (headers) => {
      scanHeaders(
        headers.flatMap(([name, bits, value]) => [anyCase(name, bits), value]),
        view,
      );
      const all = (name: string): string[] => headers.filter((entry) => entry[0] === name).map((entry) => entry[2]);
      assert.equal(view.host, all('host').at(-1));
      assert.equal(view.host_count, all('host').length);
      assert.equal(view.corr_id, all('x-corr-id').at(-1));
      assert.equal(view.authorization, all('authorization').at(-1));
      assert.equal(view.authorization_count, all('authorization').length);
      assert.equal(view.if_none_match, all('if-none-match').at(-1));
      assert.equal(view.content_length, all('content-length').at(-1));
      assert.equal(view.transfer_encoding, all('transfer-encoding').at(-1));
      assert.equal(view.expect, all('expect').length > 0);
      const conditional = headers.some(([name]) => CONDITIONAL.has(name)) || all('if-none-match').length > 1;
      assert.equal(view.conditional, conditional);
    }),
  );
});

test('repeated headers are returned one by one, in any case', () => {
  const raw = ['Host', 'a', 'X-Sig', 'v1=1', 'x-sig', 'v1=2, v1=3', 'X-SIG', '', 'X-Sigs', 'other'];
  assert.deepEqual(valuesOf(raw, 'x-Sig'), ['v1=1', 'v1=2, v1=3', '']);
  assert.deepEqual(valuesOf(raw, 'x-none'), []);
});

test('all lines of Accept-Encoding are joined', () => {
  const view = newHeaderView();
  scanHeaders(['Accept-Encoding', 'gzip', 'ACCEPT-ENCODING', 'br'], view);
  assert.equal(view.accept_encoding, 'gzip, br');
  scanHeaders(['Host', 'a'], view);
  assert.equal(view.accept_encoding, undefined);
});
