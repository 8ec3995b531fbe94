/**
 * Waits for work with a time limit.
 *
 * Contract: the outcome of the work if it ends in time; `LATE` otherwise, and then a later outcome is dropped and never
 * becomes an unhandled rejection. The timer decides: work that ends in the step in which the timer fires may be late.
 * Bound: one timer while it waits. Cancellation: of the work itself, by its signal.
 *
 *     const record = await withTimeout(volume.get(id, signal), 100);
 *     if (record === LATE) return await otherVolume.get(id, signal);
 */
import { sched } from '../sched.ts';

export const LATE = Symbol('late');

export function withTimeout<T>(work: Promise<T>, wait_ms: number): Promise<T | typeof LATE> {
  const parked = sched.park<T | typeof LATE>('with_timeout');
  const timer = sched.timer(wait_ms, () => parked.wake(LATE), 'with_timeout');
  work.then(
    (value) => {
      timer.cancel();
      parked.wake(value);
    },
    (error: unknown) => {
      timer.cancel();
      parked.fail(error);
    },
  );
  return parked.promise;
}
