/**
 * Writes a large object of a cache from a stream of bytes.
 *
 * Contract: as `ObjectWriter`; the object stays for a few seconds after `finish`, and longer if it is named meanwhile. Its
 * space is reserved from the beginning, so that the cache stays within its bound.
 * Bound: `bytes_max`; in memory two batches of the object writer. Overflow: `payload_too_large`.
 * Cancellation: by the signals; after an error only `abort` may be called.
 */
import { RonError } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { ObjectWriter } from '../objects/object-writer.ts';
import type { Written } from '../objects/put-object.ts';

export interface EvictingWriterInit {
  readonly writer: ObjectWriter;
  readonly bytes_max: number;
  readonly isLeaving: (address: Address) => boolean;
  /** Called with the bytes that need no reservation any more. */
  readonly onWritten: (bytes: number) => void;
  /** Called with the address before the object is stored: from then on it must not be removed until the result is disposed. */
  readonly claim: (address: Address, size: number) => Disposable;
}

export class EvictingWriter {
  readonly #init: EvictingWriterInit;
  #reserved_bytes: number;

  constructor(init: EvictingWriterInit) {
    this.#init = init;
    this.#reserved_bytes = init.bytes_max;
  }

  async write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    const { writer, bytes_max } = this.#init;
    if (writer.size + bytes.length > bytes_max) {
      throw new RonError('payload_too_large', `an object has at most ${bytes_max} bytes`);
    }
    await writer.write(bytes, signal);
    this.#free(Math.min(bytes.length, this.#reserved_bytes));
  }

  async finish(signal: AbortSignal): Promise<Written> {
    const { writer, isLeaving, claim } = this.#init;
    using claims = new DisposableStack();
    const { size } = writer;
    const onAddress = (address: Address): void => void claims.use(claim(address, size));
    try {
      return await writer.finish({ isLeaving, onAddress }, signal);
    } finally {
      this.#free(this.#reserved_bytes);
    }
  }

  /** Idempotent. */
  abort(): void {
    this.#init.writer.abort();
    this.#free(this.#reserved_bytes);
  }

  #free(bytes: number): void {
    this.#reserved_bytes -= bytes;
    this.#init.onWritten(bytes);
  }
}
