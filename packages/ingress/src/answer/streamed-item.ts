/**
 * One step of a streamed answer: take the next item of a source, hand it to the socket.
 *
 * Contract: both settle when the signal aborts, even if the source or the client does not answer. `ended` settles when the
 * source does nothing any more: its last `next` has settled, and so has its `return`, if it has one. `written` resolves
 * when the kernel has taken the bytes, so a caller that waits for it holds one item.
 * Bound: one waiter. Cancellation: `signal`, with its reason.
 *
 *   const source = new ItemSource(items);
 *   const item = await source.next(signal);
 *   if (item.done !== true) await written(res, item.value, signal);
 *   exchange.runsUntil(source.ended());
 */
import type { ServerResponse } from 'node:http';
import { orAborted, RonError, sched } from '@ron/kernel';

export class ItemSource<T> {
  readonly #iterator: AsyncIterator<T>;
  #last: Promise<unknown> | undefined;

  constructor(items: AsyncIterable<T>) {
    this.#iterator = items[Symbol.asyncIterator]();
  }

  async next(signal: AbortSignal): Promise<IteratorResult<T>> {
    signal.throwIfAborted();
    const next = this.#iterator.next();
    this.#last = next;
    return orAborted(next, signal);
  }

  /** Ends the source early. Settles when the source has, which may be long after the answer. Never rejects. */
  async ended(): Promise<void> {
    const returned = (async () => this.#iterator.return?.())();
    await Promise.allSettled([this.#last, returned]);
  }
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
