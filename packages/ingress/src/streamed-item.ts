/**
 * One step of a streamed answer: take the next item of a source, hand it to the socket.
 *
 * Contract: both settle when the signal aborts, even if the source or the client does not answer. `written` resolves when
 * the kernel has taken the bytes, so a caller that waits for it holds one item.
 * Bound: one waiter. Cancellation: `signal`, with its reason.
 *
 *   const item = await nextOf(iterator, signal);
 *   if (item.done !== true) await written(res, item.value, signal);
 */
import type { ServerResponse } from 'node:http';
import { orAborted, RonError, sched } from '@ron/kernel';

export async function nextOf<T>(iterator: AsyncIterator<T>, signal: AbortSignal): Promise<IteratorResult<T>> {
  signal.throwIfAborted();
  return orAborted(iterator.next(), signal);
}

export async function written(res: ServerResponse, item: string | Uint8Array, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const parked = sched.park<void>('stream.client');
  res.write(item, (error) => {
    if (error) parked.fail(new RonError('canceled', 'the client went away', { cause: error }));
    else parked.wake();
  });
  return orAborted(parked.promise, signal);
}
