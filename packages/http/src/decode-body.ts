/**
 * Compressed bodies, decoded as a stream under a guard. For requests that a listener reads and for answers of servers that are not trusted.
 *
 * Contract: gzip, brotli and zstd come out as they were, or the stream fails with a `RonError`: `unsupported_media` for any
 * other coding and for more than one (`gzip, gzip`: each layer multiplies the ratio), `bad_request`
 * for broken, truncated or trailing input, `decompress_cap` for a bomb. No decoded byte beyond a cap is handed on.
 * Bound: `bytes_max` decoded bytes, and `ratio_max` times the encoded bytes consumed so far (with a floor, so that small
 * bodies pass at any ratio). It holds two 16 KiB chunks, one source chunk and the codec's window (8 MiB at most).
 * Overflow: the bomb is cut at the cap; the codec stops where the caller stops reading.
 * Cancellation: `signal`. The source is only ever paused, never destroyed: a request destroyed takes its connection along,
 * and the refusal must still go out on it.
 */
import { Readable } from 'node:stream';
import { constants, createBrotliDecompress, createGunzip, createZstdDecompress } from 'node:zlib';
import { onAbort, RonError } from '@ron/kernel';

export interface DecodeInit {
  /** Decoded bytes per encoded byte. Default 10. */
  ratio_max?: number;
  /** Decoded bytes in all. Default 10 MiB. */
  bytes_max?: number;
  signal: AbortSignal;
}

const RATIO_MAX = 10;
const BYTES_MAX = 10 * 1024 * 1024;
/** Up to here the ratio is not judged: a short repetitive JSON body is not an attack. */
const RATIO_FLOOR_BYTES = 64 * 1024;
/** Small, so that a cap is met closely. */
const CHUNK_BYTES = 16 * 1024;
/** The window that RFC 9659 allows a sender of zstd content; the library's own limit is 128 MiB a stream. */
const ZSTD_WINDOW_LOG_MAX = 23;

type Engine = ReturnType<typeof createGunzip> | ReturnType<typeof createBrotliDecompress>;

const ENGINES: Readonly<Record<string, () => Engine>> = {
  // Several members in a row are one gzip body, so the engine's own check for trailing bytes is of no use here.
  gzip: () => createGunzip({ chunkSize: CHUNK_BYTES }),
  br: () => createBrotliDecompress({ chunkSize: CHUNK_BYTES, rejectGarbageAfterEnd: true }),
  zstd: () =>
    createZstdDecompress({
      chunkSize: CHUNK_BYTES,
      rejectGarbageAfterEnd: true,
      params: { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG_MAX },
    }),
};

/** The decoded body. Without an encoding it is the source itself. Throws `unsupported_media` before anything is read. */
export function decodeBody(source: Readable, content_encoding: string | undefined, init: DecodeInit): Readable {
  const coding = codingOf(content_encoding);
  if (coding === undefined) return source;
  const name = coding === 'x-gzip' ? 'gzip' : coding;
  if (!Object.hasOwn(ENGINES, name)) {
    throw new RonError('unsupported_media', 'the body must be encoded with one of gzip, br, zstd, or not at all', {
      details: { encodings: Object.keys(ENGINES) },
    });
  }
  return new DecodedBody(source, name, ENGINES[name]!(), init);
}

class DecodedBody extends Readable {
  readonly #source: Readable;
  readonly #name: string;
  readonly #engine: Engine;
  readonly #ratio_max: number;
  readonly #bytes_max: number;
  /** Undefined only while the constructor runs. */
  readonly #registration: Disposable | undefined;
  #started = false;
  #source_ended = false;
  #received_bytes = 0;
  #decoded_bytes = 0;

  constructor(source: Readable, name: string, engine: Engine, init: DecodeInit) {
    super({ highWaterMark: CHUNK_BYTES });
    this.#source = source;
    this.#name = name;
    this.#engine = engine;
    this.#ratio_max = init.ratio_max ?? RATIO_MAX;
    this.#bytes_max = init.bytes_max ?? BYTES_MAX;
    this.#registration = onAbort(init.signal, this.#onAbort);
  }

  override _read(): void {
    if (!this.#started) this.#start();
    this.#engine.resume();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    const source = this.#source;
    this.#registration?.[Symbol.dispose]();
    source.off('data', this.#onEncoded).off('end', this.#onSourceEnd).off('close', this.#onSourceClose);
    // The error listener stays: an error without a listener would end the process.
    if (this.#started) source.pause();
    this.#engine.destroy();
    callback(error);
  }

  #start(): void {
    this.#started = true;
    const engine = this.#engine;
    engine.on('data', this.#onDecoded).on('end', this.#onEngineEnd).on('error', this.#onEngineError);
    engine.on('drain', () => void this.#source.resume());
    const source = this.#source;
    if (source.readableEnded) return this.#onSourceEnd();
    if (source.destroyed) return this.#onSourceClose();
    source.on('error', this.#onSourceClose).on('close', this.#onSourceClose).on('end', this.#onSourceEnd);
    source.on('data', this.#onEncoded);
  }

  readonly #onEncoded = (chunk: Uint8Array): void => {
    this.#received_bytes += chunk.byteLength;
    if (!this.#engine.write(chunk)) this.#source.pause();
  };

  readonly #onSourceEnd = (): void => {
    this.#source_ended = true;
    this.#engine.end();
  };

  readonly #onSourceClose = (): void => {
    if (!this.#source_ended) this.destroy(new RonError('bad_request', 'the body broke off'));
  };

  readonly #onDecoded = (chunk: Uint8Array): void => {
    this.#decoded_bytes += chunk.byteLength;
    const overflow = this.#overflow();
    if (overflow !== undefined) this.destroy(overflow);
    else if (!this.push(chunk)) this.#engine.pause();
  };

  #overflow(): RonError | undefined {
    // [storage I-10] [kms I-10] [index I-10] [edge I-10] [interop I-10] Decoded bytes are capped in total and by ratio.
    const by_ratio = Math.max(RATIO_FLOOR_BYTES, this.#engine.bytesWritten * this.#ratio_max);
    if (this.#decoded_bytes <= Math.min(by_ratio, this.#bytes_max)) return undefined;
    const message =
      this.#decoded_bytes > this.#bytes_max
        ? `the body expands to more than ${this.#bytes_max} bytes`
        : `the body expands more than ${this.#ratio_max} times`;
    return new RonError('decompress_cap', message);
  }

  readonly #onEngineEnd = (): void => {
    // A codec that ends before its input does has met bytes that belong to nothing.
    if (this.#source_ended && this.#engine.bytesWritten === this.#received_bytes) this.push(null);
    else this.destroy(new RonError('bad_request', `there are bytes after the end of the ${this.#name} body`));
  };

  readonly #onEngineError = (error: Error & { code?: string }): void => {
    const window = error.code === 'ZSTD_error_frameParameter_windowTooLarge';
    this.destroy(
      window
        ? new RonError('decompress_cap', 'the body needs a window of more than 8 MiB', { cause: error })
        : new RonError('bad_request', `the body is not valid ${this.#name}, or is cut short`, { cause: error }),
    );
  };

  readonly #onAbort = (reason: unknown): void => {
    this.destroy(reason instanceof Error ? reason : new RonError('canceled', 'reading the body was given up'));
  };
}

/** The coding of a body, in lower case; undefined for `identity` and for a missing header. Codings are case-insensitive (RFC 9110, 8.4.1). */
export function codingOf(content_encoding: string | undefined): string | undefined {
  const coding = content_encoding?.trim().toLowerCase();
  return coding === 'identity' ? undefined : coding;
}
