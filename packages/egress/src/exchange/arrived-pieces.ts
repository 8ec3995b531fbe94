/**
 * The pieces of an answer as they arrive.
 *
 * Contract: as the async iterator of the stream, but a piece that is there already is taken without a wait, which for a small
 * body is most of the cost. `next` resolves with undefined after the end, and rejects when the answer failed or was cut.
 * Bound: the buffer of the stream: nothing is read from the socket while it is full. One waiter.
 * Cancellation: a caller that leaves `next` disposes of the pieces.
 *
 *   using pieces = new ArrivedPieces(res);
 *   const piece = pieces.take() ?? (await pieces.next());
 */
import type { IncomingMessage } from 'node:http';
import { sched, type Parked } from '@ron/kernel/core';

export class ArrivedPieces implements Disposable {
  readonly #res: IncomingMessage;
  #hasEnded = false;
  #error: unknown;
  #waiter: Parked<void> | undefined;

  constructor(res: IncomingMessage) {
    this.#res = res;
    res.on('readable', this.#wake);
    res.on('end', this.#onEnd);
    res.on('error', this.#onError);
    res.on('close', this.#onClose);
  }

  /** A piece that has arrived; undefined if there is none at the moment. */
  take(): Uint8Array | undefined {
    return this.#res.destroyed ? undefined : ((this.#res.read() as Uint8Array | null) ?? undefined);
  }

  async next(): Promise<Uint8Array | undefined> {
    for (;;) {
      const piece = this.take();
      if (piece !== undefined) return piece;
      if (this.#error !== undefined) throw this.#error;
      if (this.#hasEnded) return undefined;
      // The stream may have closed before the first piece was requested.
      if (this.#res.closed) throw cut();
      this.#waiter = sched.park<void>('egress_piece');
      await this.#waiter.promise;
    }
  }

  [Symbol.dispose](): void {
    const res = this.#res;
    res.off('readable', this.#wake);
    res.off('end', this.#onEnd);
    res.off('error', this.#onError);
    res.off('close', this.#onClose);
  }

  readonly #wake = (): void => {
    this.#waiter?.wake();
    this.#waiter = undefined;
  };

  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    this.#wake();
  };

  readonly #onError = (error: unknown): void => {
    this.#error = error;
    this.#wake();
  };

  readonly #onClose = (): void => {
    if (!this.#hasEnded) this.#error ??= cut();
    this.#wake();
  };
}

const cut = (): Error => new Error('the stream closed before its end');
