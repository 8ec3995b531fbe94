/**
 * Iterates a stream until a signal aborts.
 *
 * Contract: rejects at once with the reason of the signal, even if the source never yields again: a client that vanished may
 * never end its body. Bound: one piece at a time, requested on demand.
 */
import { onAbort, sched } from '@ron/kernel';

export async function* untilAborted(
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  const pieces = source[Symbol.asyncIterator]();
  const aborted = sched.park<never>('stream.aborted');
  aborted.promise.catch(() => undefined);
  using _ = onAbort(signal, aborted.fail);
  try {
    signal.throwIfAborted();
    for (;;) {
      const next = await Promise.race([pieces.next(), aborted.promise]);
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    // Not awaited: the source may hang.
    void pieces.return?.().then(undefined, () => undefined);
  }
}
