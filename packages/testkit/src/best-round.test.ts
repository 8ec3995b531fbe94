import assert from 'node:assert/strict';
import { test } from 'node:test';
import { holdsInARound } from './best-round.ts';

/** Returns one result after the other, and counts the calls. */
function resultsOf(...results: readonly (string | undefined)[]): {
  measure: () => Promise<string | undefined>;
  calls: number;
} {
  const self = { calls: 0, measure: () => Promise.resolve(results[self.calls++]) };
  return self;
}

test('measures until a round holds, and not after it', async () => {
  const rounds = resultsOf('slow', undefined, 'slow');
  await holdsInARound(3, rounds.measure);
  assert.equal(rounds.calls, 2);
});

test('a bound that holds in no round fails with every miss', async () => {
  const rounds = resultsOf('5 ms', '6 ms', undefined);
  await assert.rejects(holdsInARound(2, rounds.measure), { code: 'ERR_ASSERTION', message: '5 ms; 6 ms' });
  assert.equal(rounds.calls, 2);
});

test('a wrong answer ends it in the first round', async () => {
  let calls = 0;
  const measure = (): Promise<undefined> => {
    calls += 1;
    assert.equal(calls, 0);
    return Promise.resolve(undefined);
  };
  await assert.rejects(holdsInARound(3, measure), { code: 'ERR_ASSERTION' });
  assert.equal(calls, 1);
});
