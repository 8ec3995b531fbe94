/**
 * Pulls a request body, one chunk at a time.
 *
 * Contract: chunks are returned in order and exactly once; `next` resolves to undefined at the end and rejects if the
 * body fails, the client leaves, or `fail` is called. The source is only ever paused, never destroyed: destroying a
 * request destroys its connection, which must still carry the refusal.
 * Bound: reads ahead no more than the source's own buffer.
 * Cancellation: `fail(error)` rejects the pending and every later `next`.
 */
import type { Readable } from 'node:stream';
import { RonError, sched } from '@ron/kernel';
import type { Parked } from '@ron/kernel';

export class BodyReader {
  readonly #source: Readable;
  #waiter: Parked<Uint8Array | undefined> | undefined;
  #ended = false;
  #error: unknown;

  constructor(source: Readable) {
    this.#source = source;
    source.on('readable', this.#onReadable);
    source.once('end', this.#onEnd);
    source.once('error', this.#onError);
    source.once('close', this.#onClose);
  }

  /** Whether a reader waits for bytes that have not arrived. */
  get waiting(): boolean {
    return this.#waiter !== undefined;
  }

  next(): Promise<Uint8Array | undefined> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    // [storage I-10] [kms I-10] [index I-10] [edge I-10] [interop I-10] Takes the part that has arrived; the next part is pulled when it is needed.
    const chunk = this.#source.read() as Uint8Array | null;
    if (chunk !== null) return Promise.resolve(chunk);
    if (this.#ended) return Promise.resolve(undefined);
    this.#waiter = sched.park('body');
    return this.#waiter.promise;
  }

  fail(error: unknown): void {
    this.#error ??= error;
    const waiter = this.#waiter;
    this.#waiter = undefined;
    waiter?.fail(this.#error);
  }

  /** Stops listening. Unread bytes stay in the source. */
  detach(): void {
    this.#source.off('readable', this.#onReadable);
    this.#source.off('end', this.#onEnd);
    this.#source.off('close', this.#onClose);
    // The error listener stays: an error without a listener would end the process.
  }

  readonly #onReadable = (): void => {
    if (this.#waiter === undefined) return;
    const chunk = this.#source.read() as Uint8Array | null;
    if (chunk === null) return;
    const waiter = this.#waiter;
    this.#waiter = undefined;
    waiter.wake(chunk);
  };

  readonly #onEnd = (): void => {
    this.#ended = true;
    const waiter = this.#waiter;
    this.#waiter = undefined;
    waiter?.wake(undefined);
  };

  readonly #onError = (error: unknown): void => {
    this.fail(
      error instanceof RonError ? error : new RonError('bad_request', 'the body ended early', { cause: error }),
    );
  };

  readonly #onClose = (): void => {
    if (!this.#ended) this.fail(new RonError('bad_request', 'the client left before the body was complete'));
  };
}
