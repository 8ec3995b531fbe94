/**
 * Work on a body that comes by and by: the client may take its time, the disk may not.
 *
 * Promise: while the work waits for the next piece, no clock runs here (the listener watches the client). From each piece
 * until the next is asked for, and from the end of the body until the work is done, it has a deadline from `step`. When one
 * passes, `inSteps` rejects with its reason at once and the signal aborts, even if the work ignores the signal.
 * Bound: one deadline and one piece at a time: its memory is given back when the next is asked for. Cancellation: as the deadlines are cancelled.
 */
import { releaseBytes, sched, type Deadline } from '@ron/kernel';

export async function inSteps<T>(
  body: AsyncIterable<Uint8Array>,
  step: () => Deadline,
  work: (pieces: AsyncIterable<Uint8Array>, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const steps = new Steps(body, step);
  try {
    // [storage I-4] Each disk step of a write has a deadline of its own.
    return await Promise.race([work(steps.pieces(), steps.signal), steps.late]);
  } finally {
    steps.end();
  }
}

class Steps {
  readonly #body: AsyncIterable<Uint8Array>;
  readonly #step: () => Deadline;
  readonly #over = new AbortController();
  readonly #late = sched.park<never>('steps');
  #due: Deadline | undefined;

  constructor(body: AsyncIterable<Uint8Array>, step: () => Deadline) {
    this.#body = body;
    this.#step = step;
    // The caller may have left when it comes.
    this.late.catch(() => undefined);
  }

  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** Rejects when a step took too long. */
  get late(): Promise<never> {
    return this.#late.promise;
  }

  async *pieces(): AsyncGenerator<Uint8Array, void, void> {
    try {
      for await (const bytes of this.#body) {
        this.#begin();
        yield bytes;
        this.end();
        releaseBytes(bytes);
      }
    } finally {
      this.#begin();
    }
  }

  #begin(): void {
    this.end();
    const due = this.#step();
    this.#due = due;
    const { signal } = due;
    const onOver = (): void => {
      this.#late.fail(signal.reason);
      this.#over.abort(signal.reason);
    };
    if (signal.aborted) onOver();
    else signal.addEventListener('abort', onOver, { once: true });
  }

  end(): void {
    this.#due?.[Symbol.dispose]();
    this.#due = undefined;
  }
}
