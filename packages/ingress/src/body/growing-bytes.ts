/**
 * Collects bytes that arrive in pieces into one buffer.
 *
 * Contract: returns all pieces in order. A single piece is kept without a copy. More are copied, so that a body in a
 * million tiny pieces takes its own length of memory, not a view and a slab for each piece.
 * Bound: at most twice the added bytes, which the caller bounds.
 */
const FIRST_BYTES = 16 * 1024;
const EMPTY = Buffer.alloc(0);

export class GrowingBytes {
  #only: Uint8Array | undefined;
  #buffer: Buffer = EMPTY;
  #length = 0;

  add(piece: Uint8Array): void {
    if (this.#length === 0 && this.#only === undefined) {
      this.#only = piece;
      return;
    }
    if (this.#only !== undefined) {
      const first = this.#only;
      this.#only = undefined;
      this.#append(first);
    }
    this.#append(piece);
  }

  /** All bytes. Call it once, at the end. */
  whole(): Uint8Array {
    return this.#only ?? this.#buffer.subarray(0, this.#length);
  }

  #append(piece: Uint8Array): void {
    const needed = this.#length + piece.byteLength;
    if (needed > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(FIRST_BYTES, needed, this.#buffer.length * 2));
      larger.set(this.#buffer.subarray(0, this.#length));
      this.#buffer = larger;
    }
    this.#buffer.set(piece, this.#length);
    this.#length = needed;
  }
}
