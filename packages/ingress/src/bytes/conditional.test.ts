import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fuzzRuns } from '@ron/testkit';
import { assertLinearTime } from '../../test/linear-time.ts';
import { etagMatches, evaluateConditions, parseHttpDate } from './conditional.ts';
import type { ConditionHeaders, ConditionVerdict, Validators } from './conditional.ts';

const OLD = 'Sun, 06 Nov 1994 08:49:37 GMT';
const OLD_MS = Date.UTC(1994, 10, 6, 8, 49, 37);
const EARLIER = 'Sun, 06 Nov 1994 08:49:36 GMT';
const LATER = 'Sun, 06 Nov 1994 08:49:38 GMT';
const dated: Validators = { etag: '"a"', last_modified_ms: OLD_MS + 999 };
const tagged: Validators = { etag: '"a"' };
const weak: Validators = { etag: 'W/"a"' };

const CORPUS: readonly [
  method: string,
  headers: ConditionHeaders,
  current: Validators | undefined,
  verdict: ConditionVerdict,
][] = [
  ['GET', {}, tagged, 'proceed'],
  // If-Match: strong comparison, first in the order.
  ['GET', { 'if-match': '"a"' }, tagged, 'proceed'],
  ['GET', { 'if-match': '*' }, tagged, 'proceed'],
  ['GET', { 'if-match': '*' }, undefined, 'precondition_failed'],
  ['GET', { 'if-match': '"b"' }, tagged, 'precondition_failed'],
  ['GET', { 'if-match': '"b", "a"' }, tagged, 'proceed'],
  ['GET', { 'if-match': 'W/"a"' }, tagged, 'precondition_failed'],
  ['GET', { 'if-match': '"a"' }, weak, 'precondition_failed'],
  ['GET', { 'if-match': 'W/"a"' }, weak, 'precondition_failed'],
  ['GET', { 'if-match': '"b"', 'if-none-match': '"a"' }, tagged, 'precondition_failed'],
  ['GET', { 'if-match': '"a"', 'if-none-match': '"a"' }, tagged, 'not_modified'],
  ['PUT', { 'if-match': '"b"' }, tagged, 'precondition_failed'],
  ['GET', { 'if-match': '"a' }, tagged, 'precondition_failed'],
  // If-Unmodified-Since: only without If-Match.
  ['GET', { 'if-unmodified-since': EARLIER }, dated, 'precondition_failed'],
  ['GET', { 'if-unmodified-since': OLD }, dated, 'proceed'],
  ['GET', { 'if-unmodified-since': LATER }, dated, 'proceed'],
  ['GET', { 'if-unmodified-since': EARLIER, 'if-match': '"a"' }, dated, 'proceed'],
  ['GET', { 'if-unmodified-since': 'yesterday' }, dated, 'proceed'],
  ['GET', { 'if-unmodified-since': EARLIER }, tagged, 'proceed'],
  // If-None-Match: weak comparison; 412 for writes.
  ['GET', { 'if-none-match': '"a"' }, tagged, 'not_modified'],
  ['HEAD', { 'if-none-match': 'W/"a"' }, tagged, 'not_modified'],
  ['GET', { 'if-none-match': '"a"' }, weak, 'not_modified'],
  ['GET', { 'if-none-match': '"b"' }, tagged, 'proceed'],
  ['GET', { 'if-none-match': '*' }, tagged, 'not_modified'],
  ['PUT', { 'if-none-match': '*' }, tagged, 'precondition_failed'],
  ['PUT', { 'if-none-match': '*' }, undefined, 'proceed'],
  ['GET', { 'if-none-match': 'a' }, tagged, 'proceed'],
  ['GET', { 'if-none-match': '"b"', 'if-modified-since': LATER }, dated, 'proceed'],
  // If-Modified-Since: only for reads, only without If-None-Match.
  ['GET', { 'if-modified-since': OLD }, dated, 'not_modified'],
  ['GET', { 'if-modified-since': EARLIER }, dated, 'proceed'],
  ['PUT', { 'if-modified-since': OLD }, dated, 'proceed'],
  ['GET', { 'if-modified-since': 'Sun, 06 Nov 1994' }, dated, 'proceed'],
  // If-Range: strong comparison, exact date.
  ['GET', { 'if-range': '"a"' }, tagged, 'proceed'],
  ['GET', { 'if-range': '"b"' }, tagged, 'full'],
  ['GET', { 'if-range': 'W/"a"' }, tagged, 'full'],
  ['GET', { 'if-range': 'W/"a"' }, weak, 'full'],
  ['GET', { 'if-range': '"a", "b"' }, tagged, 'full'],
  ['GET', { 'if-range': '*' }, tagged, 'full'],
  ['GET', { 'if-range': OLD }, dated, 'proceed'],
  ['GET', { 'if-range': LATER }, dated, 'full'],
  ['GET', { 'if-range': EARLIER }, dated, 'full'],
  ['GET', { 'if-range': OLD }, tagged, 'full'],
  ['GET', { 'if-range': '' }, tagged, 'full'],
  ['GET', { 'if-range': '"a"', 'if-none-match': '"a"' }, tagged, 'not_modified'],
];

test('the corpus of conditions, in the order of the RFC', () => {
  for (const [method, headers, current, verdict] of CORPUS)
    assert.equal(evaluateConditions(method, headers, current), verdict, `${method} ${JSON.stringify(headers)}`);
});

test('a date within the current second is not a strong validator', () => {
  const now_ms = Math.floor(Date.now() / 1000) * 1000;
  const header = new Date(now_ms).toUTCString();
  assert.equal(evaluateConditions('GET', { 'if-range': header }, { etag: '"a"', last_modified_ms: now_ms }), 'full');
});

const TAGS: readonly [list: string, weakly: boolean][] = [
  ['"a"', true],
  ['W/"a"', true],
  ['w/"a"', false],
  ['"A"', false],
  [' "a" ', true],
  [',,"a",,', true],
  ['"b","a"', true],
  ['"b" , W/"a"\t', true],
  ['"a" "b"', false],
  ['"a""b"', false],
  ['"b", "a', false],
  ['"a", b', false],
  ['"a", *', false],
  ['*, "a"', false],
  [' *', false],
  ['W/ "a"', false],
  ['W/', false],
  ['W', false],
  ['', false],
  [',', false],
  ['a', false],
  ['"a"x', false],
  ['""', false],
  ['"a b"', false],
  ['"a\u0000"', false],
  ['"a\u0100"', false],
  ['"\\"a"', false],
  ['"xa"', false],
  ['"ax"', false],
];

test('the corpus of entity-tag lists', () => {
  for (const [list, weakly] of TAGS) assert.equal(etagMatches(list, '"a"', 'weak'), weakly, list);
  assert.equal(etagMatches('""', '""', 'strong'), true);
  assert.equal(etagMatches('"\u00e9"', '"\u00e9"', 'strong'), true);
  assert.equal(etagMatches('"a,b"', '"a,b"', 'strong'), true, 'a comma inside quotes does not split');
});

test('a list matches exactly if one of its tags does', () => {
  const opaque = fc.string({ unit: fc.constantFrom(...'ab,!#[]~\u00ff'.split('')), maxLength: 3 }).map((s) => `"${s}"`);
  const tag = fc.tuple(fc.constantFrom('', 'W/'), opaque).map((parts) => parts.join(''));
  const comma = fc.constantFrom(',', ', ', ' ,', ',,', ' \t, ');
  fc.assert(
    fc.property(fc.array(fc.tuple(tag, comma), { minLength: 1, maxLength: 5 }), tag, (members, etag) => {
      const list = members.flat().join('');
      const strip = (t: string): string => t.replace(/^W\//, '');
      assert.equal(
        etagMatches(list, etag, 'weak'),
        members.some(([t]) => strip(t) === strip(etag)),
      );
      assert.equal(
        etagMatches(list, etag, 'strong'),
        members.some(([t]) => t === etag && !t.startsWith('W/')),
      );
    }),
    fuzzRuns(2000),
  );
});

test('dates: exactly the three forms are accepted', () => {
  for (const text of [OLD, 'Sunday, 06-Nov-94 08:49:37 GMT', 'Sun Nov  6 08:49:37 1994'])
    assert.equal(parseHttpDate(text), OLD_MS, text);
  for (const text of [
    '',
    '0',
    '1994-11-06T08:49:37Z',
    'Sun, 06 Nov 1994 08:49:37',
    'Sun, 06 Nov 1994 08:49:37 UTC',
    'sun, 06 nov 1994 08:49:37 gmt',
    'Mon, 06 Nov 1994 08:49:37 GMT',
    'Sun, 6 Nov 1994 08:49:37 GMT',
    'Sun, 06 Nov 1994 24:00:00 GMT',
    'Sun, 06 Nov 1994 08:60:00 GMT',
    'Thu, 31 Feb 1994 08:49:37 GMT',
    'Sun, 06 Foo 1994 08:49:37 GMT',
    `${OLD} `,
    ` ${OLD}`,
    `${OLD}, ${OLD}`,
    '9'.repeat(10_000),
  ])
    assert.equal(parseHttpDate(text), undefined, text);
});

test('every second of 1970 to 9999 round-trips through its HTTP-date', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 253_402_300_799 }), (seconds) => {
      assert.equal(parseHttpDate(new Date(seconds * 1000).toUTCString()), seconds * 1000);
    }),
    fuzzRuns(1000),
  );
});

test('arbitrary headers never throw', () => {
  const text = fc.option(
    fc.oneof(fc.string({ unit: 'binary' }), fc.string({ unit: fc.constantFrom(...'W/"a, *\tb'.split('')) })),
    { nil: undefined },
  );
  fc.assert(
    fc.property(
      fc.tuple(text, text, text, text, text),
      fc.constantFrom(tagged, weak, dated, undefined),
      ([a, b, c, d, e], current) => {
        const headers = {
          'if-match': a,
          'if-unmodified-since': b,
          'if-none-match': c,
          'if-modified-since': d,
          'if-range': e,
        };
        evaluateConditions('GET', headers, current);
      },
    ),
    fuzzRuns(2000),
  );
});

test('time is linear in the length', () => {
  assertLinearTime((length) => {
    for (const piece of ['"', ',', ' ', '"a",', 'W/"b",', 'W/', '"a" '])
      etagMatches(piece.repeat(length / piece.length), '"a"', 'weak');
  });
});
