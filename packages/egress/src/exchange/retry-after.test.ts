import assert from 'node:assert/strict';
import { test } from 'node:test';
import { retryAfter_ms } from './retry-after.ts';

const NOW_MS = Date.parse('Mon, 16 Nov 2026 05:00:00 GMT');

test('seconds and dates are read, anything else is ignored', () => {
  const cases: readonly (readonly [header: string, expected: number | undefined])[] = [
    ['0', 0],
    ['2', 2000],
    ['9999999999', 86_400_000],
    ['Mon, 16 Nov 2026 05:00:07 GMT', 7000],
    ['Mon, 16 Nov 2026 04:00:00 GMT', 0],
    ['Fri, 31 Dec 9999 23:59:59 GMT', 86_400_000],
    ['Mon, 99 Nov 2026 05:00:07 GMT', undefined],
    ['', undefined],
    ['-1', undefined],
    ['1.5', undefined],
    ['1e3', undefined],
    ['99999999999', undefined],
    ['2026-11-16', undefined],
    ['soon', undefined],
  ];
  for (const [header, expected] of cases) assert.equal(retryAfter_ms([header], NOW_MS), expected, header);
  assert.equal(retryAfter_ms(undefined, NOW_MS), undefined);
  assert.equal(retryAfter_ms(['1', '2'], NOW_MS), undefined);
});
