/**
 * One step of a streamed answer: pull the next item of a source, write it to the socket.
 *
 * Contract: `next` and `written` settle when the signal aborts, even if the source or the client does not respond.
 * `ended` resolves when the source is done: its last `next` has settled, and so has its `return`, if any. `written`
 * resolves when the kernel has accepted the bytes, so a caller that awaits it holds one item.
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

  /** Ends the source early. Resolves when the source is done, which may be long after the answer. Never rejects. */
  async ended(): Promise<void> {
    const returned = (async () => this.#iterator.return?.())();
    await Promise.allSettled([this.#last, returned]);
  }
}

export async function written(res: ServerResponse, item: string | Uint8Array, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const parked = sched.park<void>('stream.client');
  res.write(item, (error) => {
    if (error) parked.fail(new RonError('canceled', 'the client disconnected', { cause: error }));
    else parked.wake();
  });
  return orAborted(parked.promise, signal);
}
