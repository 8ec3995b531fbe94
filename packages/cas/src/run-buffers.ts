/**
 * Buffers for runs of records, reused: page faults of fresh memory cost as much as reading the bytes into it.
 *
 * Contract: a buffer that was taken belongs to the caller until `give`; its content is undefined. It has at least the bytes
 * asked for, at most twice as many. A buffer that something may still write into is reported by `lose` instead.
 * Bound: free buffers are kept only while they and the taken ones together have at most `bytes_max`.
 */
const SMALLEST_BYTES = 68 * 1024;

export class RunBuffers {
  readonly #bytes_max: number;
  /** By size, each twice the one before. */
  readonly #free = new Map<number, Buffer[]>();
  #free_bytes = 0;
  #taken_bytes = 0;

  constructor(bytes_max: number) {
    this.#bytes_max = bytes_max;
  }

  get free_bytes(): number {
    return this.#free_bytes;
  }

  take(bytes: number): Buffer {
    const size = sizeFor(bytes);
    const kept = this.#free.get(size)?.pop();
    if (kept !== undefined) this.#free_bytes -= size;
    this.#taken_bytes += size;
    this.#trim();
    return kept ?? Buffer.allocUnsafeSlow(size);
  }

  give(buffer: Buffer): void {
    const size = buffer.length;
    this.#taken_bytes -= size;
    if (this.#taken_bytes + this.#free_bytes + size > this.#bytes_max) return;
    const kept = this.#free.get(size);
    if (kept === undefined) this.#free.set(size, [buffer]);
    else kept.push(buffer);
    this.#free_bytes += size;
  }

  lose(buffer: Buffer): void {
    this.#taken_bytes -= buffer.length;
  }

  /** Drops free buffers of any size until the bound holds. */
  #trim(): void {
    for (const [size, kept] of this.#free) {
      while (kept.length > 0 && this.#taken_bytes + this.#free_bytes > this.#bytes_max) {
        kept.pop();
        this.#free_bytes -= size;
      }
    }
  }
}

function sizeFor(bytes: number): number {
  let size = SMALLEST_BYTES;
  while (size < bytes) size *= 2;
  return size;
}
