/**
 * Cuts length-prefixed frames out of the bytes of a stream.
 *
 * Bound: a frame has at most `frame_bytes_max` bytes; a longer one is refused when its length is read, before its bytes
 * are kept. At most one incomplete frame is held, in a buffer of its size.
 */
import { RonError } from '@ron/kernel';

/** Enough for lengths below 2^21. */
const PREFIX_BYTES_MAX = 3;

export class FrameReader {
  readonly #frame_bytes_max: number;
  /** The length as far as it was read, and its number of bytes. */
  #length = 0;
  #prefix = 0;
  /** The incomplete frame, once its length is known. */
  #body: Uint8Array | undefined;
  #filled = 0;

  constructor(frame_bytes_max: number) {
    this.#frame_bytes_max = frame_bytes_max;
  }

  /** Whether no part of a frame is held. */
  get isEmpty(): boolean {
    return this.#prefix === 0;
  }

  /** Takes the next bytes and returns the frames that they complete. Throws `bad_gateway` for a frame that is too long. */
  push(chunk: Uint8Array): Uint8Array[] {
    const frames: Uint8Array[] = [];
    let at = 0;
    while (at < chunk.length) {
      if (this.#body !== undefined) at = this.#fill(this.#body, chunk, at, frames);
      else if (this.#readPrefix(chunk[at++]!)) at = this.#begin(chunk, at, frames);
    }
    return frames;
  }

  /** Takes one byte of the length; true when it was the last one. */
  #readPrefix(byte: number): boolean {
    this.#length |= (byte & 0x7f) << (7 * this.#prefix++);
    const isLast = byte < 0x80;
    if (this.#length > this.#frame_bytes_max || (!isLast && this.#prefix === PREFIX_BYTES_MAX))
      throw new RonError('bad_gateway', `DHT message of more than ${this.#frame_bytes_max} bytes`);
    return isLast;
  }

  #begin(chunk: Uint8Array, at: number, frames: Uint8Array[]): number {
    const end = at + this.#length;
    if (end > chunk.length) {
      this.#body = new Uint8Array(this.#length);
      return at;
    }
    frames.push(chunk.subarray(at, end));
    this.#reset();
    return end;
  }

  #fill(body: Uint8Array, chunk: Uint8Array, at: number, frames: Uint8Array[]): number {
    const end = Math.min(chunk.length, at + body.length - this.#filled);
    body.set(chunk.subarray(at, end), this.#filled);
    this.#filled += end - at;
    if (this.#filled === body.length) {
      frames.push(body);
      this.#reset();
    }
    return end;
  }

  #reset(): void {
    this.#length = 0;
    this.#prefix = 0;
    this.#body = undefined;
    this.#filled = 0;
  }
}
