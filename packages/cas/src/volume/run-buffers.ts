/**
 * Buffers for runs of records, reused: page faults of fresh memory cost as much as reading the bytes into it.
 *
 * Contract: a buffer that was taken belongs to the caller until `give`; it has at least the requested bytes, their content is
 * undefined. After `give` nothing may refer to it: its memory is reused or freed at once, because garbage of this size
 * would grow the process before it is collected. A buffer that a failed read may still write into is dropped by `lose`.
 * Bound: `SPANS_MAX` buffers of `span_bytes` and `SINGLES_MAX` of one chunk are kept. Overflow: further buffers are allocated
 * with the exact size and freed by `give`; read-ahead.ts limits how many there are.
 */
import { releaseBytes } from '@ron/kernel';

const SPANS_MAX = 11;
/** A chunk of the usual 64 KiB with its header. */
const SINGLE_BYTES = 68 * 1024;
const SINGLES_MAX = 32;

export class RunBuffers {
  readonly #span_bytes: number;
  readonly #spans: Buffer[] = [];
  readonly #singles: Buffer[] = [];
  #spans_total = 0;

  constructor(span_bytes: number) {
    this.#span_bytes = span_bytes;
  }

  take(bytes: number): Buffer {
    if (bytes <= SINGLE_BYTES) return this.#singles.pop() ?? Buffer.allocUnsafeSlow(SINGLE_BYTES);
    if (bytes > this.#span_bytes) return Buffer.allocUnsafeSlow(bytes);
    const span = this.#spans.pop();
    if (span !== undefined) return span;
    if (this.#spans_total === SPANS_MAX) return Buffer.allocUnsafeSlow(bytes);
    this.#spans_total += 1;
    return Buffer.allocUnsafeSlow(this.#span_bytes);
  }

  give(buffer: Buffer): void {
    const isSpan = buffer.length === this.#span_bytes;
    const isSingle = buffer.length === SINGLE_BYTES;
    if (isSpan && this.#spans.length < SPANS_MAX) this.#spans.push(buffer);
    else if (isSingle && this.#singles.length < SINGLES_MAX) this.#singles.push(buffer);
    else releaseBytes(buffer);
  }

  lose(buffer: Buffer): void {
    if (buffer.length === this.#span_bytes) this.#spans_total = Math.max(0, this.#spans_total - 1);
  }
}
