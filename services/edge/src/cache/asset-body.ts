/**
 * Takes the body of a fill as it arrives, and hashes it.
 *
 * Contract: a body of up to one chunk stays in memory and is written together with its note. A larger one streams to disk, if
 * the disk works and has room for `bytes_max`; otherwise all of it stays in memory, within a budget.
 * Bound: `bytes_max`; in memory one chunk and the batches of the object writer, together below 1 MiB, or the budget.
 * Overflow: `payload_too_large`, also above the whole budget; `busy` when the budget is used up. Cancellation: by the signals.
 */
import { blake3 } from '@napi-rs/blake-hash';
import type { EvictingWriter } from '@ron/cas';
import { assert, RonError } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { Blake3Hasher } from '@ron/simd/blake3-hasher';
import type { ByteSource } from '@ron/ingress';
import type { BodyWriter, StoredBody } from './asset-cache.ts';
import { ramSource, type SourceInit } from './asset-source.ts';
import type { BodyBudget, BodyClaim } from './body-budget.ts';

/** Larger bodies go to disk while they arrive. */
export const SMALL_BYTES_MAX = 64 * 1024;
const FIRST_BYTES = 16 * 1024;
const GROWTH = 1.5;

export interface AssetBodyInit {
  readonly bytes_max: number;
  readonly expected_bytes: number | undefined;
  readonly budget: BodyBudget;
  /** A writer to the disk; undefined if there is none at the moment. */
  readonly toDisk: () => EvictingWriter | undefined;
  /** The source of an object that was just written. */
  readonly sourceOf: (about: SourceInit, signal: AbortSignal) => Promise<ByteSource>;
}

export class AssetBody implements BodyWriter {
  readonly #init: AssetBodyInit;
  #buffer: Buffer;
  #size = 0;
  /** Set once the body has left memory. */
  #disk: EvictingWriter | undefined;
  /** Set once a large body stays in memory. */
  #claim: BodyClaim | undefined;
  /** Of a large body in memory: hashing it at once would take a long turn of the event loop. */
  #hasher: Blake3Hasher | undefined;

  constructor(init: AssetBodyInit) {
    this.#init = init;
    const first_bytes = Math.min(init.expected_bytes ?? FIRST_BYTES, SMALL_BYTES_MAX);
    this.#buffer = Buffer.allocUnsafeSlow(first_bytes);
  }

  async write(chunk: Uint8Array, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { bytes_max } = this.#init;
    const size = this.#size + chunk.length;
    // [edge I-10] The limit holds although the origin states no length, or a false one.
    if (size > bytes_max) throw new RonError('payload_too_large', `an asset has at most ${bytes_max} bytes`);
    if (this.#disk === undefined && this.#claim === undefined && size > SMALL_BYTES_MAX) await this.#leaveSmall(signal);
    this.#size = size;
    if (this.#disk !== undefined) return await this.#disk.write(chunk, signal);
    this.#append(chunk, size);
  }

  async finish(media_type: string, signal: AbortSignal): Promise<StoredBody> {
    if (this.#disk !== undefined) return await this.#finishOnDisk(this.#disk, media_type, signal);
    const bytes = exactly(this.#buffer, this.#size);
    const address = formatAddress(this.#hasher?.digest() ?? blake3(bytes));
    const about = { address, size: this.#size, media_type };
    const claim = this.#claim;
    claim?.resize(this.#size);
    claim?.finished();
    const discard = (): void => claim?.release();
    return { address, size: about.size, source: ramSource(about, bytes), isOnDisk: false, discard };
  }

  abort(): void {
    this.#disk?.abort();
    this.#claim?.release();
  }

  async #finishOnDisk(disk: EvictingWriter, media_type: string, signal: AbortSignal): Promise<StoredBody> {
    const { address, size } = await disk.finish(signal);
    assert(size === this.#size, 'the whole body was written');
    const source = await this.#init.sourceOf({ address, size, media_type }, signal);
    // The object is evicted soon unless it gets a name.
    return { address, size, source, isOnDisk: true, discard: () => undefined };
  }

  async #leaveSmall(signal: AbortSignal): Promise<void> {
    this.#disk = this.#init.toDisk();
    const bytes = this.#buffer.subarray(0, this.#size);
    if (this.#disk !== undefined) return await this.#disk.write(bytes, signal);
    this.#claim = this.#init.budget.claim();
    this.#hasher = new Blake3Hasher();
    this.#hasher.update(bytes);
  }

  #append(chunk: Uint8Array, size: number): void {
    if (size > this.#buffer.length) {
      const { bytes_max, budget } = this.#init;
      const larger_bytes = Math.min(bytes_max, budget.bytes_max, Math.ceil(this.#buffer.length * GROWTH));
      const bytes = Math.max(size, larger_bytes);
      this.#claim?.resize(bytes);
      const larger = Buffer.allocUnsafeSlow(bytes);
      larger.set(this.#buffer.subarray(0, size - chunk.length));
      this.#buffer = larger;
    }
    this.#buffer.set(chunk, size - chunk.length);
    this.#hasher?.update(chunk);
  }
}

/** Memory without slack, because the bytes may be kept. */
function exactly(buffer: Buffer, size: number): Buffer {
  if (buffer.length === size) return buffer;
  const bytes = Buffer.allocUnsafeSlow(size);
  bytes.set(buffer.subarray(0, size));
  return bytes;
}
