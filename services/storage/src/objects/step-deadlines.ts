/**
 * Deadlines for work on a body that arrives slowly: they bound the disk, not the client.
 *
 * Contract: no deadline runs while the work waits for the next piece of the body (the listener bounds the client). From each
 * piece until the work requests the next, and from the end of the body until the work is done, a deadline from `step`
 * applies. When it passes, the call rejects with its reason at once and the signal aborts, even if the work ignores it.
 * Bound: one deadline and one piece at a time; the memory of a piece is released when the next is requested.
 * Cancellation: by the deadlines.
 */
import { onAbort, releaseBytes, sched, type Deadline } from '@ron/kernel';

export async function withStepDeadlines<T>(
  body: AsyncIterable<Uint8Array>,
  step: () => Deadline,
  work: (pieces: AsyncIterable<Uint8Array>, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const steps = new StepDeadlines(body, step);
  try {
    // [storage I-4] Each disk step of a write has a deadline of its own.
    return await Promise.race([work(steps.pieces(), steps.signal), steps.late]);
  } finally {
    steps.end();
  }
}

class StepDeadlines {
  readonly #body: AsyncIterable<Uint8Array>;
  readonly #step: () => Deadline;
  readonly #over = new AbortController();
  readonly #late = sched.park<never>('steps');
  #due: Deadline | undefined;

  constructor(body: AsyncIterable<Uint8Array>, step: () => Deadline) {
    this.#body = body;
    this.#step = step;
    // It may reject after the caller has returned.
    this.late.catch(() => undefined);
  }

  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** Rejects when the deadline of a step passes. */
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
    onAbort(due.signal, (reason) => {
      this.#late.fail(reason);
      this.#over.abort(reason);
    });
  }

  end(): void {
    this.#due?.[Symbol.dispose]();
    this.#due = undefined;
  }
}
