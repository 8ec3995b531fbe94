/**
 * Keeps large buffers of one size for reuse: page faults of fresh memory cost as much as the bytes that are read into it.
 *
 * Contract: a buffer that was taken belongs to the caller until it is given back; its content is undefined. After `give`
 * the caller must not use it: the next caller would see its bytes change. A buffer that is never given back is collected
 * as any other object.
 * Bound: at most `kept_max` buffers are kept. Overflow: `give` keeps no more than that, and no buffer of another size.
 *
 *     const pool = new BufferPool(1024 * 1024, 4);
 *     const buffer = pool.take();
 *     await file.read(buffer);
 *     pool.give(buffer);
 */
export class BufferPool {
  readonly bytes: number;
  readonly #kept_max: number;
  readonly #kept: Buffer[] = [];

  constructor(bytes: number, kept_max: number) {
    this.bytes = bytes;
    this.#kept_max = kept_max;
  }

  /** Buffers that the next callers of `take` get without an allocation. */
  get kept(): number {
    return this.#kept.length;
  }

  take(): Buffer {
    return this.#kept.pop() ?? Buffer.allocUnsafeSlow(this.bytes);
  }

  /** Whether the buffer was kept. */
  give(buffer: Buffer): boolean {
    const isWhole = buffer.length === this.bytes && buffer.buffer.byteLength === this.bytes;
    const isKept = isWhole && this.#kept.length < this.#kept_max;
    if (isKept) this.#kept.push(buffer);
    return isKept;
  }
}
