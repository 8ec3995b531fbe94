/**
 * A work queue in which no request waits for a worker longer than a set time, however long the work itself may take.
 *
 * Promise: a job whose work has not begun when `wait` is over is answered with its `timeout`; one whose work has begun is
 * left alone. Everything else is as the queue promises. Bound: one timer for each job that waits. Overflow: the queue's.
 * Cancellation: by the deadline of the job, which this also ends.
 *
 * For writes: their budget goes by progress and may be hours, so it cannot bound the wait as well.
 */
import type { LaneQueue } from '@ron/ingress';
import { onAbort, type Deadline, type WorkQueue } from '@ron/kernel';

export function patientQueue(queue: Pick<WorkQueue, 'submit' | 'idle'>, wait: () => Deadline): LaneQueue {
  return {
    async submit(lane, deadline, work, key) {
      // With a worker at hand there is nothing to wait for.
      if (queue.idle > 0) return await queue.submit(lane, deadline, work, key);
      using patience = wait();
      onAbort(patience.signal, (reason) => deadline.cancel(reason));
      const begin = (scope: Deadline): ReturnType<typeof work> => {
        patience[Symbol.dispose]();
        return work(scope);
      };
      return await queue.submit(lane, deadline, begin, key);
    },
  };
}
