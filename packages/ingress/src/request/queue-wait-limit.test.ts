import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, isRonError, WorkQueue } from '@ron/kernel';
import { limitQueueWait } from './queue-wait-limit.ts';

const NEVER = new AbortController().signal;
const later = (delay_ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, delay_ms));

function queues(wait_ms: number): {
  queue: WorkQueue;
  limited: ReturnType<typeof limitQueueWait>;
  expired: () => number;
} {
  const queue = new WorkQueue('work', { capacity: 4, lanes: ['put'] });
  let expired = 0;
  const limited = limitQueueWait(queue, () => Deadline.after('wait', wait_ms, { onExpire: () => (expired += 1) }));
  return { queue, limited, expired: () => expired };
}

const long = (): Deadline => Deadline.after('put', 60_000);

test('a job without a worker in time gets a timeout, and its place is free again', async () => {
  const { queue, limited, expired } = queues(20);
  const waiting = limited.submit('put', long(), () => Promise.resolve('never'));
  assert.equal(queue.depth, 1);
  await assert.rejects(waiting, (error) => isRonError(error, 'timeout') && error.op === 'wait');
  assert.equal(queue.depth, 0);
  assert.equal(expired(), 1);
});

test('work that has begun has no time limit', async () => {
  const { queue, limited, expired } = queues(20);
  const answer = limited.submit('put', long(), async () => {
    await later(80);
    return 'done';
  });
  await (await queue.take(NEVER))!.run();
  assert.equal(await answer, 'done');
  assert.equal(expired(), 0);
});

test('errors of the queue and of the work are passed on unchanged', async () => {
  const { queue, limited, expired } = queues(10_000);
  const answer = limited.submit('put', long(), () => Promise.reject(new Error('broken')));
  const over = limited.submit('put', Deadline.after('put', 10), () => Promise.resolve());
  await (await queue.take(NEVER))!.run();
  await assert.rejects(answer, /broken/);
  await assert.rejects(over, (error) => isRonError(error, 'timeout') && error.op === 'put');
  queue.close();
  await assert.rejects(
    limited.submit('put', long(), () => Promise.resolve()),
    (error) => isRonError(error, 'draining'),
  );
  assert.equal(expired(), 0);
});
