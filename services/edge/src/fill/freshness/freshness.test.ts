import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { FreshnessFields } from '../../cache/cached-asset.ts';
import { freshnessOf, isStorable, type Freshness } from './freshness.ts';

const AT_MS = Date.parse('Mon, 16 Nov 2026 05:00:00 GMT');
const HOUR_MS = 3_600_000;
const NO_STALE = { stale_while_revalidate: 0, stale_if_error: 0 };
const STALE = { stale_while_revalidate: 30_000, stale_if_error: 600_000 };

const http = (at_ms: number): string => new Date(at_ms).toUTCString();

function fieldsOf(given: Partial<FreshnessFields> = {}): FreshnessFields {
  return {
    cache_control: undefined,
    expires: undefined,
    date: undefined,
    last_modified: undefined,
    age_s: 0,
    request_ms: AT_MS,
    response_ms: AT_MS,
    ...given,
  };
}

const at = (given: Partial<FreshnessFields>, after_ms = 0, rules = NO_STALE): Freshness =>
  freshnessOf({ freshness: fieldsOf(given) }, rules, AT_MS + after_ms);

const LIFETIMES: readonly (readonly [given: Partial<FreshnessFields>, source: string, lifetime_s: number])[] = [
  [{}, 'none', 0],
  [{ cache_control: 'max-age=60' }, 'max-age', 60],
  [{ cache_control: 'MAX-AGE=60' }, 'max-age', 60],
  [{ cache_control: 'max-age="60"' }, 'max-age', 60],
  [{ cache_control: 'public , max-age=60,,' }, 'max-age', 60],
  [{ cache_control: 'max-age=60, s-maxage=10' }, 's-maxage', 10],
  [{ cache_control: 's-maxage=0, max-age=60' }, 's-maxage', 0],
  [{ cache_control: 'max-age=60, max-age=60' }, 'max-age', 60],
  [{ cache_control: 'max-age=60, max-age=90' }, 'max-age', 0],
  [{ cache_control: 'max-age=-1' }, 'max-age', 0],
  [{ cache_control: 'max-age=1.5' }, 'max-age', 0],
  [{ cache_control: 'max-age' }, 'max-age', 0],
  [{ cache_control: 'max-age=' }, 'max-age', 0],
  [{ cache_control: 'max-age=99999999999999999999' }, 'max-age', 2 ** 31],
  [{ cache_control: 'x="a, max-age=9", max-age=60' }, 'max-age', 60],
  [{ cache_control: '@@@, max-age=60' }, 'max-age', 60],
  [{ cache_control: 'no-cache, max-age=60' }, 'no-cache', 0],
  [{ cache_control: 'no-cache="x-field", max-age=60' }, 'no-cache', 0],
  [{ cache_control: 'max-age=60', expires: '0' }, 'max-age', 60],
  [{ expires: http(AT_MS + 90_000) }, 'expires', 90],
  [{ expires: http(AT_MS + 90_000), date: http(AT_MS - 10_000) }, 'expires', 100],
  [{ expires: http(AT_MS - 1000) }, 'expires', 0],
  [{ expires: '0' }, 'expires', 0],
  [{ expires: '-1', last_modified: http(AT_MS - HOUR_MS) }, 'expires', 0],
  [{ last_modified: http(AT_MS - HOUR_MS) }, 'heuristic', 360],
  [{ last_modified: http(AT_MS - 10_000 * HOUR_MS) }, 'heuristic', 86_400],
  [{ last_modified: http(AT_MS + HOUR_MS) }, 'heuristic', 0],
  [{ last_modified: 'yesterday' }, 'none', 0],
];

for (const [given, source, lifetime_s] of LIFETIMES)
  test(`lifetime of ${JSON.stringify(given)}: ${lifetime_s} s by ${source}`, () => {
    const found = at(given);
    assert.deepEqual([found.source, found.lifetime_s], [source, lifetime_s]);
  });

const AGES: readonly (readonly [given: Partial<FreshnessFields>, after_ms: number, age_s: number])[] = [
  [{}, 0, 0],
  [{}, 5000, 5],
  [{ age_s: 20 }, 5000, 25],
  [{ age_s: 20, request_ms: AT_MS - 2000 }, 0, 22],
  [{ date: http(AT_MS - 30_000) }, 0, 30],
  [{ date: http(AT_MS - 30_000), age_s: 40 }, 1000, 41],
  [{ date: http(AT_MS + 30_000) }, 0, 0],
  [{ date: 'today' }, 3000, 3],
  [{ date: http(AT_MS), response_ms: AT_MS + 900, request_ms: AT_MS + 900 }, 1000, 0],
];

for (const [given, after_ms, age_s] of AGES)
  test(`age of ${JSON.stringify(given)} after ${after_ms} ms: ${age_s} s`, () => {
    assert.equal(at({ cache_control: 'max-age=60', ...given }, after_ms).age_s, age_s);
  });

test('an asset is fresh until its lifetime has passed, and not at that moment', () => {
  const given = { cache_control: 'max-age=60' };
  assert.deepEqual([at(given, 59_999).isFresh, at(given, 59_999).fresh_ms], [true, 1]);
  assert.deepEqual([at(given, 60_000).isFresh, at(given, 60_000).fresh_ms], [false, 0]);
});

test('the configuration permits stale answers, and a directive of the origin shortens that', () => {
  const stale = at({ cache_control: 'max-age=60' }, 70_000, STALE);
  assert.deepEqual([stale.while_revalidate_ms, stale.if_error_ms], [20_000, 590_000]);
  const less = at({ cache_control: 'max-age=60, stale-while-revalidate=15, stale-if-error=20' }, 70_000, STALE);
  assert.deepEqual([less.while_revalidate_ms, less.if_error_ms], [5000, 10_000]);
  const more = at({ cache_control: 'max-age=60, stale-while-revalidate=999' }, 70_000, NO_STALE);
  assert.deepEqual([more.while_revalidate_ms, more.if_error_ms], [0, 0]);
});

for (const directive of ['must-revalidate', 'proxy-revalidate', 'no-cache', 's-maxage=60'])
  test(`${directive} forbids stale answers that the configuration permits`, () => {
    const found = at({ cache_control: `${directive}, max-age=60, stale-if-error=600` }, 60_000, STALE);
    assert.deepEqual([found.isFresh, found.mustRevalidate], [false, true]);
    assert.deepEqual([found.while_revalidate_ms, found.if_error_ms], [0, 0]);
  });

test('after a jump of the clock by an hour, in either direction, a short-lived asset is revalidated', () => {
  const given = { cache_control: 'max-age=60' };
  const forward = at(given, HOUR_MS);
  assert.deepEqual([forward.isFresh, forward.age_s, forward.isClockBack], [false, 3600, false]);
  const back = at(given, -HOUR_MS);
  assert.deepEqual([back.isFresh, back.age_s, back.isClockBack], [false, 0, true]);
  assert.equal(at(given, -500).isFresh, true);
});

test('objects of storage are always fresh', () => {
  assert.equal(freshnessOf({ freshness: undefined }, NO_STALE, AT_MS + 1e12).fresh_ms, Infinity);
});

const MALFORMED = [
  'private; max-age=60',
  'max-age=60; private',
  'max-age=60;private',
  'max-age=60, private;',
  'no-store; max-age=60, max-age=60',
  'max-age=60, private="set-cookie',
  'max-age=60, no-store =1',
  'max-age=60, private= "a"',
  'max-age=60 private',
  'max-age=60 no-cache',
  '"private", max-age=60',
  'max-age="60, private"',
  'max-age="60, No-Store"',
  'x=(private), max-age=60',
  '@@@, max-age=60',
];

test('no-store, private and a malformed header keep an answer out of a shared cache', () => {
  for (const header of ['no-store', 'max-age=60, Private', 'private="x"', 'x,no-store', `a=${'b'.repeat(5000)}`])
    assert.equal(isStorable(header), false, header);
  for (const header of MALFORMED) assert.equal(isStorable(header), false, header);
  for (const header of [
    undefined,
    '',
    ' ',
    ',',
    ', max-age=60 ,\t,',
    'x="\\", private"',
    'x="\u00e9"',
    'max-age=',
    'no-cache',
    'max-age=0',
    'x="no-store"',
    'no-storex',
    'public',
  ])
    assert.equal(isStorable(header), true, String(header));
});

test('freshness only decreases with time, and no header makes it fail', () => {
  const word = fc.constantFrom('max-age', 's-maxage', '=', '60', '"', ',', ' ', '\\', 'no-cache', 'stale-if-error');
  const header = fc.array(word, { maxLength: 12 }).map((words) => words.join(''));
  const time = fc.nat(10 * HOUR_MS);
  fc.assert(
    fc.property(header, fc.nat(100_000), time, time, (cache_control, age_s, one_ms, other_ms) => {
      const early = at({ cache_control, age_s }, Math.min(one_ms, other_ms), STALE);
      const late = at({ cache_control, age_s }, Math.max(one_ms, other_ms), STALE);
      assert.ok(late.fresh_ms <= early.fresh_ms && late.age_s >= early.age_s);
      assert.ok(late.if_error_ms <= early.if_error_ms && late.if_error_ms >= late.fresh_ms);
      assert.equal(early.isFresh, early.fresh_ms > 0);
      assert.ok(Number.isFinite(early.lifetime_s) && early.lifetime_s >= 0);
    }),
  );
});
