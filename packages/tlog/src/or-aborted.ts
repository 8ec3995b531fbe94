/**
 * Work that may ignore its signal.
 *
 * Promise: ends with the signal's reason at once when it aborts; what the work gives later is dropped, also a failure.
 * So a signer that hangs does not keep the next checkpoint waiting. Bound: one listener while it waits.
 */
import { sched } from '@ron/kernel';

export async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const parked = sched.park<T>('or_aborted');
  const onAbort = (): void => parked.fail(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  work.then(parked.wake, parked.fail);
  try {
    return await parked.promise;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
