import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError, RonError } from '@ron/kernel';
import { JobEnd } from './pack-jobs.ts';

const left = (error: unknown): boolean => isRonError(error, 'timeout');

test('a job whose caller has left does not commit', async () => {
  const caller = new AbortController();
  const ends = new JobEnd<string>(caller.signal);
  let isCommitted = false;
  const work = ends.with(async () => {
    caller.abort(new RonError('timeout', 'the caller left'));
    ends.commit();
    isCommitted = true;
    return 'mounted';
  });
  await assert.rejects(ends.outcome, left);
  await work;
  assert.equal(isCommitted, false);
});

test('the caller of a job that has committed waits for its outcome', async () => {
  const caller = new AbortController();
  const ends = new JobEnd<string>(caller.signal);
  const work = ends.with(async () => {
    ends.commit();
    caller.abort(new RonError('timeout', 'the caller left'));
    return 'mounted';
  });
  assert.equal(await ends.outcome, 'mounted');
  await work;
});
