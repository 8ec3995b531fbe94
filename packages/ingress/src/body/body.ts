/**
 * Request bodies: buffered within a total time, or streamed while the client keeps sending.
 *
 * Contract: no byte beyond the limit is kept or passed on. A compressed body is decoded through the guard while it
 * streams. The second phase of the capability sees every decoded byte, and the end, before the handler does.
 * Bound: `bytes_max` for a body without a coding; for a compressed one `bytes_max` on the wire and
 * `decompress_abs_bytes` decoded. A streamed body holds one chunk and the source's buffer. A chunk belongs to its
 * receiver.
 * Cancellation: `fail(error)` rejects the waiting reader. The request itself is never destroyed: that would destroy its
 * connection, which must still carry the refusal.
 */
import type { IncomingMessage } from 'node:http';
import { RonError } from '@ron/kernel';
import { codingOf, decodeBody } from '@ron/http';
import type { Phase2 } from '@ron/proto';
import { insist } from '../guards/access.ts';
import { BodyReader } from './body-reader.ts';
import { GrowingBytes } from './growing-bytes.ts';
import { headerText } from '../guards/header-text.ts';

/** The client is late, not the service or an upstream. */
export const bodyLate = (): RonError =>
  new RonError('request_timeout', 'the body did not arrive in time', { op: 'read' });

export interface BodyLimits {
  /** Infinity for none. */
  readonly bytes_max: number;
  readonly decompress_max_ratio: number;
  readonly decompress_abs_bytes: number;
}

export class Body implements AsyncIterable<Uint8Array> {
  readonly #req: IncomingMessage;
  readonly #reader: BodyReader;
  readonly #phase2: Phase2 | undefined;
  /** Undefined without a content coding: wire and decoded bytes are then the same. */
  readonly #wire_bytes_max: number | undefined;
  readonly #wire_start_bytes: number;
  readonly #bytes_max: number;
  #received_bytes = 0;

  /** Throws `payload_too_large` or `unsupported_media` before anything is read. */
  constructor(req: IncomingMessage, limits: BodyLimits, phase2: Phase2 | undefined, signal: () => AbortSignal) {
    this.#req = req;
    this.#phase2 = phase2;
    // [storage I-10] [kms I-10] [index I-10] [edge I-10] [interop I-10] The declared length is checked before the body is read, received bytes as they arrive.
    if (Number(headerText(req, 'content-length') ?? 0) > limits.bytes_max) throw tooLarge(limits.bytes_max);
    const encoding = headerText(req, 'content-encoding');
    const isPlain = codingOf(encoding) === undefined;
    this.#bytes_max = isPlain ? limits.bytes_max : limits.decompress_abs_bytes;
    this.#wire_bytes_max = isPlain ? undefined : limits.bytes_max;
    this.#wire_start_bytes = req.socket.bytesRead;
    this.#reader = new BodyReader(
      isPlain
        ? req
        : decodeBody(req, encoding, {
            ratio_max: limits.decompress_max_ratio,
            bytes_max: limits.decompress_abs_bytes,
            signal: signal(),
          }),
    );
  }

  /** Whether a reader waits for bytes that have not arrived. */
  get waiting(): boolean {
    return this.#reader.waiting;
  }

  fail(error: unknown): void {
    this.#reader.fail(error);
  }

  /** The next chunk, counted and checked; undefined at the end. */
  async next(): Promise<Uint8Array | undefined> {
    const chunk = await this.#reader.next();
    if (chunk === undefined) {
      this.#reader.detach();
      if (this.#phase2 !== undefined) insist(this.#phase2.end());
      return undefined;
    }
    this.#received_bytes += chunk.byteLength;
    if (this.#received_bytes > this.#bytes_max) throw tooLarge(this.#bytes_max);
    const { socket } = this.#req;
    if (this.#wire_bytes_max !== undefined && socket.bytesRead - this.#wire_start_bytes > this.#wire_bytes_max) {
      throw tooLarge(this.#wire_bytes_max);
    }
    if (this.#phase2 !== undefined) insist(this.#phase2.update(chunk));
    return chunk;
  }

  async whole(): Promise<Uint8Array> {
    const gathered = new GrowingBytes();
    for (let chunk = await this.next(); chunk !== undefined; chunk = await this.next()) gathered.add(chunk);
    return gathered.whole();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    for (let chunk = await this.next(); chunk !== undefined; chunk = await this.next()) yield chunk;
  }
}

/** Called once, with the error or the body. */
export type Gathered<Owner> = (owner: Owner, error: RonError | undefined, body: Uint8Array | undefined) => void;

const kBufferedBody = Symbol('ron.plain-body');

interface Carrier extends IncomingMessage {
  [kBufferedBody]?: BufferedBody<unknown>;
}

/**
 * Buffers a body that has no coding and no caveats: the common small request, without a promise per chunk or a closure
 * per request. `fail` ends a body whose connection closed or whose parser failed.
 */
export class BufferedBody<Owner> {
  readonly #req: IncomingMessage;
  readonly #owner: Owner;
  readonly #gathered = new GrowingBytes();
  readonly #bytes_max: number;
  #left: number;
  #done: Gathered<Owner> | undefined;

  constructor(req: IncomingMessage, bytes_max: number, owner: Owner, done: Gathered<Owner>) {
    this.#req = req;
    this.#owner = owner;
    this.#bytes_max = bytes_max;
    this.#left = bytes_max;
    this.#done = done;
    (req as Carrier)[kBufferedBody] = this as BufferedBody<unknown>;
    req.on('data', onBufferedData);
    req.on('end', onBufferedEnd);
  }

  get waiting(): boolean {
    return this.#done !== undefined;
  }

  fail(error: RonError): void {
    this.#settle(error);
  }

  add(chunk: Uint8Array): void {
    this.#left -= chunk.byteLength;
    if (this.#left >= 0) {
      this.#gathered.add(chunk);
      return;
    }
    this.#req.pause();
    this.#settle(tooLarge(this.#bytes_max));
  }

  end(): void {
    this.#settle(undefined);
  }

  #settle(error: RonError | undefined): void {
    const done = this.#done;
    this.#done = undefined;
    done?.(this.#owner, error, error === undefined ? this.#gathered.whole() : undefined);
  }
}

function onBufferedData(this: Carrier, chunk: Uint8Array): void {
  this[kBufferedBody]!.add(chunk);
}

function onBufferedEnd(this: Carrier): void {
  this[kBufferedBody]!.end();
}

export function tooLarge(bytes_max: number): RonError {
  return new RonError('payload_too_large', `the body is larger than ${bytes_max} bytes`, { details: { bytes_max } });
}
