import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fuzzRuns } from '@ron/testkit';
import { budgetFrom } from './budget.ts';

const NOW_MS = 1_700_000_000_000;

test('the client may shorten its budget, never lengthen it', () => {
  assert.equal(budgetFrom({}, 5000, NOW_MS), 5000);
  assert.equal(budgetFrom({ 'request-timeout': '2' }, 5000, NOW_MS), 2000);
  assert.equal(budgetFrom({ 'request-timeout': '0.25' }, 5000, NOW_MS), 250);
  assert.equal(budgetFrom({ 'request-timeout': '0' }, 5000, NOW_MS), 0);
  assert.equal(budgetFrom({ 'request-timeout': '60' }, 5000, NOW_MS), 5000);
  assert.equal(budgetFrom({ deadline: String(NOW_MS + 700) }, 5000, NOW_MS), 700);
  assert.equal(budgetFrom({ deadline: String(NOW_MS - 700) }, 5000, NOW_MS), 0);
  assert.equal(budgetFrom({ deadline: String(NOW_MS + 99_999) }, 5000, NOW_MS), 5000);
  assert.equal(budgetFrom({ deadline: String(NOW_MS + 700), 'request-timeout': '0.3' }, 5000, NOW_MS), 300);
});

test('a malformed header is ignored', () => {
  for (const text of [
    '',
    ' ',
    '-1',
    '+1',
    '1s',
    '1,2',
    '1e1',
    '0x1',
    'NaN',
    'Infinity',
    '1.',
    '.5',
    '1 ',
    '9'.repeat(400),
    '٣',
  ]) {
    assert.equal(budgetFrom({ 'request-timeout': text }, 5000, NOW_MS), 5000, text);
    assert.equal(budgetFrom({ deadline: text }, 5000, NOW_MS), 5000, text);
  }
});

test('for any headers the budget is between 0 and the limit', () => {
  const text = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.double().map(String),
    fc.bigInt().map(String),
    fc.constantFrom<string | string[]>(['1', '2']),
  );
  fc.assert(
    fc.property(text, text, fc.nat(100_000), (timeout, deadline, budget_ms) => {
      const got = budgetFrom({ 'request-timeout': timeout, deadline }, budget_ms, NOW_MS);
      assert.ok(got >= 0 && got <= budget_ms);
    }),
    fuzzRuns(2000),
  );
});
