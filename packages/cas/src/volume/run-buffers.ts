/**
 * Buffers for runs of records, from two pools: one chunk, and a span of several.
 *
 * Contract: a buffer that was taken belongs to the caller until `give`; it has at least the requested bytes, their content is
 * undefined. After `give` nothing may refer to it: its memory is reused or freed at once, because garbage of this size
 * would grow the process before it is collected. A buffer that a failed read may still write into is dropped by `lose`.
 * Bound: `SPANS_MAX` buffers of `span_bytes` and `SINGLES_MAX` of one chunk are kept. Overflow: further buffers are allocated
 * with the exact size and freed by `give`; read-ahead.ts limits how many there are.
 */
import { BufferPool, releaseBytes } from '@ron/kernel';

const SPANS_MAX = 11;
/** A chunk of the usual 64 KiB with its header. */
const SINGLE_BYTES = 68 * 1024;
const SINGLES_MAX = 32;

export class RunBuffers {
  readonly #spans: BufferPool;
  readonly #singles = new BufferPool(SINGLE_BYTES, SINGLES_MAX);
  #spans_total = 0;

  constructor(span_bytes: number) {
    this.#spans = new BufferPool(span_bytes, SPANS_MAX);
  }

  take(bytes: number): Buffer {
    if (bytes <= SINGLE_BYTES) return this.#singles.take();
    if (bytes > this.#spans.bytes) return Buffer.allocUnsafeSlow(bytes);
    if (this.#spans.kept > 0) return this.#spans.take();
    if (this.#spans_total === SPANS_MAX) return Buffer.allocUnsafeSlow(bytes);
    this.#spans_total += 1;
    return this.#spans.take();
  }

  give(buffer: Buffer): void {
    if (!this.#spans.give(buffer) && !this.#singles.give(buffer)) releaseBytes(buffer);
  }

  lose(buffer: Buffer): void {
    if (buffer.length === this.#spans.bytes) this.#spans_total = Math.max(0, this.#spans_total - 1);
  }
}
