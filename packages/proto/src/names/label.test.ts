import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { formatAddress } from '../address.ts';
import { checkLabel, hasPrefix, isLabel, isLabelPrefix, LABEL_BYTES_MAX, prefixesOf } from './label.ts';
import { checkName, checkTarget, formatTarget } from './target.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 1000);
const KEY = 'ab'.repeat(32);
const FIRST = 'abcxyz0189'.split('');
const segment = fc
  .tuple(fc.constantFrom(...FIRST), fc.array(fc.constantFrom(...FIRST, '.', '_', '-'), { maxLength: 20 }))
  .map(([first, rest]) => first + rest.join(''));
const label = fc.array(segment, { minLength: 1, maxLength: 6 }).map((segments) => segments.join('/'));

test('valid labels are accepted, and their targets survive formatting and parsing', () => {
  const target = fc.oneof(
    fc.uint8Array({ minLength: 32, maxLength: 32 }).map((hash) => formatAddress(hash)),
    label.map((each) => `name:${each}`),
    label.map((each) => `name:${each}@${KEY}`),
  );
  fc.assert(
    fc.property(target, (text) => {
      const result = checkTarget(text);
      assert.ok(result.ok);
      assert.equal(formatTarget(result.target), text);
    }),
    { numRuns },
  );
});

test('a label in another spelling is refused with the reason', () => {
  const cases: [unknown, RegExp][] = [
    ['', /empty/],
    ['Docs', /upper case/],
    ['docs/', /segment 2 is empty/],
    ['/docs', /segment 1 is empty/],
    ['a//b', /segment 2 is empty/],
    ['a/../b', /segment 2 does not begin/],
    ['.hidden', /segment 1 does not begin/],
    ['-x', /does not begin/],
    ['a b', /another character/],
    ['a%2fb', /another character/],
    ['café', /another character/],
    ['\u0430bc', /does not begin/],
    ['a\n', /another character/],
    ['a@b', /another character/],
    ['a'.repeat(64), /segment 1 has more than 63/],
    ['a'.repeat(256), /more than 255/],
    [null, /null/],
    [7, /number/],
  ];
  for (const [input, reason] of cases) {
    const result = checkLabel(input);
    assert.ok(!result.ok, `${String(input)} was accepted`);
    assert.match(result.problem, reason);
    assert.ok(!isLabel(input));
  }
  assert.ok(isLabel('a'.repeat(63)));
  assert.ok(isLabel(`${`${'a'.repeat(62)}/`.repeat(4)}abc`));
  assert.equal(`${`${'a'.repeat(62)}/`.repeat(4)}abc`.length, LABEL_BYTES_MAX);
  assert.ok(isLabelPrefix('') && isLabelPrefix('a/b') && !isLabelPrefix('a/'));
});

test('no text throws, and a valid label contains only the documented characters', () => {
  fc.assert(
    fc.property(fc.oneof(fc.anything(), fc.string({ unit: 'binary', maxLength: 300 })), (input) => {
      const result = checkLabel(input);
      if (result.ok) assert.match(result.label, /^[a-z0-9._/-]{1,255}$/);
      checkTarget(input);
      if (typeof input === 'string') checkName(input);
    }),
    { numRuns },
  );
});

test('a key in another spelling than 64 lower-case hex digits is refused', () => {
  for (const key of ['', KEY.slice(1), `${KEY}0`, KEY.toUpperCase(), `${KEY}@${KEY}`]) {
    assert.ok(!checkTarget(`name:a@${key}`).ok);
  }
  for (const text of ['a', 'name:', 'NAME:a', `b3:${KEY.toUpperCase()}`, 'name:a ']) assert.ok(!checkTarget(text).ok);
});

test('prefixes match whole segments only, and a label lists its own, the longest first', () => {
  assert.ok(hasPrefix('docs/guide', 'docs') && hasPrefix('docs', 'docs') && hasPrefix('docs', ''));
  assert.ok(!hasPrefix('docs-old/x', 'docs') && !hasPrefix('doc', 'docs'));
  assert.deepEqual([...prefixesOf('a/bc/d')], ['a/bc/d', 'a/bc', 'a', '']);
  fc.assert(
    fc.property(label, label, (left, right) => {
      assert.equal(hasPrefix(left, right), [...prefixesOf(left)].includes(right));
    }),
    { numRuns },
  );
});
