/**
 * Large buffers that are used again: fresh memory costs as much in page faults as the bytes that are read into it.
 *
 * Promise: a buffer that was taken belongs to the caller until it is given back; its content is undefined.
 * Bound: at most `kept_max` are kept; more are left to the collector, and so is a buffer of another length. A caller
 * that does not give one back loses nothing else; one that uses it afterwards corrupts the bytes of the next caller.
 */
export class BufferPool {
  readonly bytes: number;
  readonly #kept_max: number;
  readonly #kept: Buffer[] = [];

  constructor(bytes: number, kept_max: number) {
    this.bytes = bytes;
    this.#kept_max = kept_max;
  }

  take(): Buffer {
    return this.#kept.pop() ?? Buffer.allocUnsafeSlow(this.bytes);
  }

  give(buffer: Buffer): void {
    const isWhole = buffer.length === this.bytes && buffer.buffer.byteLength === this.bytes;
    if (isWhole && this.#kept.length < this.#kept_max) this.#kept.push(buffer);
  }
}
