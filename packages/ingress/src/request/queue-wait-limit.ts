/**
 * Limits how long a job waits for a worker, independently of the deadline of its work.
 *
 * Contract: a job whose work has not begun when the deadline of `wait` passes is answered with the `timeout` of that deadline.
 * Work that has begun is not affected. The contract of the queue applies otherwise.
 * Bound: one timer for each waiting job. Overflow: as the queue's. Cancellation: by the deadline of the job.
 *
 * Used for writes: their deadline is extended while the body makes progress, so it does not bound the wait.
 */
import { onAbort, type Deadline, type WorkQueue } from '@ron/kernel';
import type { LaneQueue } from '../table/prepared-route.ts';

export function limitQueueWait(queue: Pick<WorkQueue, 'submit' | 'idle'>, wait: () => Deadline): LaneQueue {
  return {
    async submit(lane, deadline, work, key) {
      // A worker is idle: the job does not wait.
      if (queue.idle > 0) return await queue.submit(lane, deadline, work, key);
      using limit = wait();
      onAbort(limit.signal, (reason) => deadline.cancel(reason));
      const begin = (scope: Deadline): ReturnType<typeof work> => {
        limit[Symbol.dispose]();
        return work(scope);
      };
      return await queue.submit(lane, deadline, begin, key);
    },
  };
}
