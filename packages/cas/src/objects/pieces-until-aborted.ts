/**
 * A stream of bytes, until a signal says otherwise.
 *
 * Promise: it ends at once with the signal's reason, even if the source never yields again: a client that vanished
 * may never end its body. Bound: one piece at a time, asked for when it is wanted. Cancellation: this is it.
 */
import { sched } from '@ron/kernel';

export async function* piecesUntilAborted(
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  const pieces = source[Symbol.asyncIterator]();
  const aborted = sched.park<never>('stream.aborted');
  aborted.promise.catch(() => undefined);
  const onAbort = (): void => aborted.fail(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    signal.throwIfAborted();
    for (;;) {
      const next = await Promise.race([pieces.next(), aborted.promise]);
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    signal.removeEventListener('abort', onAbort);
    // Not waited for: it may be what hangs.
    void pieces.return?.().then(undefined, () => undefined);
  }
}
