/**
 * What a promise gives, or the reason of a signal, whichever is first. The work goes on when nobody waits for it any more.
 */
import { sched } from '@ron/kernel';

export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = sched.park<never>('until_aborted');
  const onAbort = (): void => aborted.fail(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
