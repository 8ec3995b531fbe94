/** The deadline of an upload, on the real registry and directory: openers that do not end are the only stand-ins. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { onAbort, RonError, sched } from '@ron/kernel';
import { eventually, tempDir } from '@ron/testkit';
import type { OpenPackInit, PackOpener } from '../../src/packs/pack.ts';
import { openRegistry } from './stub-openers.ts';

/** Never opens a pack: it waits until its signal aborts. */
function hangingOpener(opened: OpenPackInit[], ignoresSignal = false): PackOpener {
  return {
    open: (init) => {
      opened.push(init);
      const parked = sched.park<never>('hangs');
      if (!ignoresSignal) onAbort(init.signal, parked.fail);
      return parked.promise;
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

test('an upload that is not verified in time is refused, those behind it too, and nothing is kept', async () => {
  await using temp = await tempDir();
  const opened: OpenPackInit[] = [];
  const { registry, jobs, stopping, task, put } = openRegistry(temp.path, hangingOpener(opened));
  const first = put('a');
  await eventually('the first is being verified', () => opened.length === 1);
  // [edge I-3] [edge I-9] Two more fit into the channel, and a fourth is refused at once.
  const waiting = [put('b'), put('c')];
  await eventually('two jobs wait', () => jobs.depth === 2);
  assert.equal(await put('d'), 'busy');
  // [edge I-4] The deadline begins after the last byte, and counts the wait.
  assert.deepEqual(await Promise.all([first, ...waiting]), ['timeout', 'timeout', 'timeout']);
  await eventually('nothing is kept', async () => (await readdir(temp.path)).length === 0);
  const last = put('e');
  await eventually('another is being verified', () => opened.some(({ path }) => path.includes('.e.')));
  const queued = put('f');
  await eventually('one job waits', () => jobs.depth === 1);
  // [edge I-6] A stop refuses the jobs that wait.
  stopping.abort(new RonError('draining', 'stopping'));
  await task;
  assert.deepEqual(await Promise.all([last, queued]), ['timeout', 'draining']);
  await registry[Symbol.asyncDispose]();
});

test('a verification that ignores its signal does not keep its caller waiting', async () => {
  await using temp = await tempDir();
  const { put } = openRegistry(temp.path, hangingOpener([], true));
  // [edge I-5]
  assert.deepEqual(await Promise.all([put('a'), put('b')]), ['timeout', 'timeout']);
  await eventually('nothing is kept', async () => (await readdir(temp.path)).length === 0);
});
