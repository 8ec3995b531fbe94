/**
 * Work that may ignore its signal.
 *
 * Promise: what the work gives, or the signal's reason as soon as it aborts, also when it was aborted before; what the
 * work gives later is dropped, also a failure. So something that hangs does not keep others waiting.
 * Bound: one listener while it waits. Cancellation: by the signal; the work itself goes on.
 */
import { sched } from '../sched.ts';

export async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const parked = sched.park<T>('or_aborted');
  const onAbort = (): void => parked.fail(signal.reason);
  if (signal.aborted) onAbort();
  // [storage I-5] [kms I-5]
  signal.addEventListener('abort', onAbort, { once: true });
  work.then(parked.wake, parked.fail);
  try {
    return await parked.promise;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
