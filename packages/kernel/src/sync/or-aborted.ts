/**
 * Waits for work that may ignore its signal.
 *
 * Contract: resolves or rejects with the outcome of the work, or rejects with the signal's reason as soon as the signal
 * aborts, even if it aborted before the call. A later outcome is dropped and never becomes an unhandled rejection.
 * Bound: one abort listener while it waits. Cancellation: by the signal; the work itself goes on.
 */
import { sched } from '../sched.ts';
import { onAbort } from './on-abort.ts';

export async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const parked = sched.park<T>('or_aborted');
  // [storage I-5] [kms I-5] [index I-5] [edge I-5] [interop I-5]
  using _ = onAbort(signal, parked.fail);
  work.then(parked.wake, parked.fail);
  return await parked.promise;
}
