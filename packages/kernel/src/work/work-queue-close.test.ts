import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { Deadline } from '../time/deadline.ts';
import { RonError } from '../errors.ts';
import { sleep } from '../sched.ts';
import { WorkQueue } from './work-queue.ts';
import { after, code, never, onQueue, sleeper, work } from '../../test/work-queue-support.ts';

test(
  'close refuses new jobs, lets queued ones drain, and then ends the workers',
  onQueue(8, async (queue, time) => {
    const workers = [work(queue), work(queue)];
    const answers = [1, 2, 3, 4].map((value) =>
      queue.submit('get', after(100), async () => {
        await sleep(10, never);
        return value;
      }),
    );
    queue.close();
    queue.close();
    await assert.rejects(queue.submit('get', after(100), sleeper(0)), code('draining'));
    await time.advance(20);
    assert.deepEqual(await Promise.all(answers), [1, 2, 3, 4]);
    await Promise.all(workers);
    assert.deepEqual(time.timers, []);
  }),
);

test(
  'close wakes workers that wait',
  onQueue(8, async (queue) => {
    const waiting = [queue.take(never), queue.take(never)];
    queue.close();
    assert.deepEqual(await Promise.all(waiting), [undefined, undefined]);
  }),
);

test(
  'abortQueued answers every job whose work has not begun, and only those',
  onQueue(8, async (queue, time) => {
    const running = queue.submit('get', after(100), () => Promise.resolve('done'));
    const queued = [1, 2, 3].map(() => queue.submit('get', after(100), () => assert.fail('it ran')));
    const ran = (await queue.take(never))!.run();
    const taken = await queue.take(never);
    assert.equal(queue.abortQueued(new RonError('draining', 'stopping')), 3);
    for (const answer of queued) await assert.rejects(answer, /stopping/);
    assert.equal(await running, 'done');
    await ran;
    await taken!.run();
    queue.close();
    assert.deepEqual(time.timers, []);
    assert.equal(queue.canceled_total, 3);
  }),
);

test(
  'disposing closes and rejects the jobs that wait',
  onQueue(8, async (queue) => {
    const answer = queue.submit('get', after(100), sleeper(0));
    await queue[Symbol.asyncDispose]();
    await assert.rejects(answer, code('draining'));
    assert.equal(await queue.take(never), undefined);
  }),
);

test('a worker whose task stops closes the queue and still serves accepted jobs', async () => {
  const queue = new WorkQueue('work', { capacity: 8, lanes: ['get'] });
  const stop = new AbortController();
  const served: number[] = [];
  const jobs = [1, 2, 3].map((number) =>
    queue.submit('get', Deadline.after('get', 10_000), async () => void served.push(number)),
  );
  stop.abort();
  await queue.serve({ signal: new AbortController().signal, stopping: stop.signal });
  await Promise.all(jobs);
  assert.deepEqual(served, [1, 2, 3]);
  await assert.rejects(
    queue.submit('get', Deadline.after('get', 10_000), async () => undefined),
    RonError,
  );
  assert.equal(getEventListeners(stop.signal, 'abort').length, 0);
});
