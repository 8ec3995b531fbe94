import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cell } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { RefusalSums, type RefusalCounters } from './refusal-sums.ts';

const FULL_PER_S = 10;
const SUMS_MAX = 4096;

function make(): { sums: RefusalSums; counters: RefusalCounters } {
  const counters: RefusalCounters = new Map();
  return { sums: new RefusalSums(new Cell('counters', 3, counters)), counters };
}

/** How many of `count` refusals are recorded one by one. */
function refuse(
  sums: RefusalSums,
  count: number,
  provider = 'shop',
  reason: 'BAD_ORIGIN' | 'BUSY' = 'BAD_ORIGIN',
): number {
  return Array.from({ length: count }, () => sums.admits(provider, reason)).filter(Boolean).length;
}

test('ten refusals of a provider and reason in a second are recorded one by one, the others as a sum', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const { sums } = make();
    assert.equal(refuse(sums, 25), FULL_PER_S);
    assert.equal(refuse(sums, 3, 'shop', 'BUSY'), 3, 'another reason');
    assert.equal(refuse(sums, 3, 'other'), 3, 'another provider');
    clock.advanceSync(999);
    assert.deepEqual(sums.due(), [], 'the second has not ended');
    clock.advanceSync(1);
    assert.deepEqual(sums.due(), [{ provider: 'shop', reason: 'BAD_ORIGIN', count: 15 }]);
    assert.deepEqual(sums.due(), [], 'given out once');
    assert.equal(refuse(sums, 12), FULL_PER_S, 'a new second');
  });
});

test('exactly ten refusals leave no sum, and nothing in memory', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const { sums, counters } = make();
    assert.equal(refuse(sums, FULL_PER_S), FULL_PER_S);
    clock.advanceSync(1000);
    assert.deepEqual(sums.due(), []);
    assert.equal(counters.size, 0);
  });
});

test('at a stop, `rest` gives out the sums of the second that has not ended', () => {
  const { sums } = make();
  refuse(sums, 11);
  assert.deepEqual(sums.rest(), [{ provider: 'shop', reason: 'BAD_ORIGIN', count: 1 }]);
});

test('a refusal without a reason has a sum of its own', () => {
  const { sums } = make();
  for (let at = 0; at < 12; at += 1) sums.admits('shop', undefined);
  refuse(sums, 11);
  assert.deepEqual(
    sums.rest().map(({ reason, count }) => [reason, count]),
    [
      [undefined, 2],
      ['BAD_ORIGIN', 1],
    ],
  );
});

test('pairs beyond the bound are summed for the provider -, and none is lost', () => {
  const { sums, counters } = make();
  for (let at = 0; at < SUMS_MAX; at += 1) sums.admits(`p${at}`, 'BAD_ORIGIN');
  assert.equal(counters.size, SUMS_MAX);
  for (let at = 0; at < 100; at += 1) sums.admits(`q${at}`, 'BAD_ORIGIN');
  assert.equal(counters.size, SUMS_MAX + 1);
  assert.equal(refuse(sums, 20, 'p0'), FULL_PER_S - 1, 'a known pair keeps its own');
  assert.deepEqual(sums.rest(), [
    { provider: 'p0', reason: 'BAD_ORIGIN', count: 11 },
    { provider: '-', reason: 'BAD_ORIGIN', count: 90 },
  ]);
});
