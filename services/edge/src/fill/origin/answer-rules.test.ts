/** A 304 updates the stored headers, and those that it does not repeat stay (RFC 9111, 3.2). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judgeAnswer, type AnswerHeaders } from './answer-rules.ts';

const TIMES = { request_ms: 1000, response_ms: 2000 };
const RULES = { types: ['image/*'], etag: 'strong' } as const;
const KNOWN = {
  cache_control: 'max-age=60',
  expires: 'Mon, 16 Nov 2026 05:00:00 GMT',
  date: 'Sun, 15 Nov 2026 05:00:00 GMT',
  last_modified: 'Sat, 14 Nov 2026 05:00:00 GMT',
  age_s: 7,
  request_ms: 0,
  response_ms: 0,
};

const judge = (headers: AnswerHeaders) => judgeAnswer(304, headers, TIMES, RULES, { etag: '"1"', freshness: KNOWN });

test('headers that a 304 does not repeat are those of the stored answer; date and age are its own', () => {
  const { cache_control, expires, last_modified } = KNOWN;
  assert.deepEqual(judge({}), {
    kind: 'unchanged',
    etag: '"1"',
    freshness: { cache_control, expires, last_modified, date: undefined, age_s: 0, ...TIMES },
    isStorable: true,
  });
});

test('headers of a 304 replace the stored ones', () => {
  const freshness = { cache_control: 'no-store', expires: '0', last_modified: 'x', date: 'y', age_s: 3, ...TIMES };
  const headers = {
    'cache-control': ['no-store'],
    expires: ['0'],
    'last-modified': ['x'],
    date: ['y'],
    age: ['3'],
    etag: ['"1"'],
  };
  assert.deepEqual(judge(headers), { kind: 'unchanged', etag: '"1"', freshness, isStorable: false });
});
