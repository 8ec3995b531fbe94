/**
 * A copy of borrowed bytes, as the source of an answer.
 *
 * Contract: exactly the given bytes, even if their memory is reused. Large ones that the caller hands over are not copied. Small ones are copied as text, the form that the
 * socket fast path writes, and converted to bytes only on demand, such as for a range: a buffer for each of many small
 * bodies that are sent once costs more than reading them.
 * Bound: one copy; two of a small one that was also read as bytes.
 */
import type { ByteDescription } from './byte-answer.ts';
import type { Batch, ByteSource } from './bytes.ts';

/** Up to this size a body is kept as text: head and body are then joined into one string and one write. */
export const TEXT_BYTES_MAX = 16 * 1024;

/** One character for each byte. */
export const textOf = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');

export class CopiedBytes implements ByteSource {
  readonly size: number;
  readonly etag: string;
  readonly media_type: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly encoding?: string;
  readonly born_ms?: number;
  readonly cache_status?: NonNullable<ByteDescription['cache_status']>;
  /** Defined if the body is small. */
  readonly text: string | undefined;
  #ram: Batch | undefined;

  /** Given copied bytes, it shares their memory. */
  constructor(
    bytes: Uint8Array | CopiedBytes,
    about: Required<Pick<ByteDescription, 'etag' | 'media_type' | 'headers'>> &
      Pick<ByteDescription, 'encoding' | 'born_ms' | 'cache_status'> & {
        /** The caller does not use the memory of the bytes any more. */
        readonly isHandedOver?: boolean;
      },
  ) {
    this.size = bytes instanceof CopiedBytes ? bytes.size : bytes.length;
    this.etag = about.etag;
    this.media_type = about.media_type;
    this.headers = about.headers;
    if (about.encoding !== undefined) this.encoding = about.encoding;
    if (about.born_ms !== undefined) this.born_ms = about.born_ms;
    if (about.cache_status !== undefined) this.cache_status = about.cache_status;
    if (bytes instanceof CopiedBytes) {
      this.text = bytes.text;
      this.#ram = bytes.#ram;
    } else {
      this.text = bytes.length <= TEXT_BYTES_MAX ? textOf(bytes) : undefined;
      if (this.text === undefined) this.#ram = [about.isHandedOver === true ? bytes : Uint8Array.from(bytes)];
    }
  }

  get ram(): Batch {
    this.#ram ??= [Buffer.from(this.text!, 'latin1')];
    return this.#ram;
  }

  async *read(start: number, end: number): AsyncGenerator<Batch, void, void> {
    yield this.ram.map((bytes) => bytes.subarray(start, end));
  }
}
