/**
 * The body of an answer: pieces on demand, counted, and complete or an error.
 *
 * Contract: a piece is read from the socket only when the reader requests it. The end is reported only after the last
 * byte that the framing announces; a lost connection is `unreachable`. With `decode`, gzip, br and zstd are decoded under
 * the guard of `@ron/http`. One reader, once.
 * Bound: `bytes_max` bytes as sent (`payload_too_large`, before the first piece if they are declared), the guard's bounds
 * for decoded bytes (`decompress_cap`), and the buffer of the socket. Between two pieces at most `idle_ms` pass while the
 * reader waits (`timeout`, op `egress_idle`). Cancellation: by the total deadline of the request.
 *
 *   for await (const piece of answer.body) await sink.write(piece);
 *   const bytes = await answer.body.whole();
 */
import type { ClientRequest, IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { isRonError, RonError, type Deadline } from '@ron/kernel/core';
import { decodeBody } from '@ron/http';
import type { EgressLimits } from '../limits.ts';
import { ArrivedPieces } from './arrived-pieces.ts';
import { badAnswer, judgeWire } from './errors.ts';
import type { Framing } from './framing.ts';

export interface AnswerBodyInit {
  readonly req: ClientRequest;
  readonly res: IncomingMessage;
  readonly framing: Framing;
  readonly total: Deadline;
  readonly limits: EgressLimits;
  readonly bytes_max: number;
  readonly decode: boolean;
}

export class AnswerBody implements AsyncIterable<Uint8Array> {
  readonly #init: AnswerBodyInit;
  #wireError: unknown = undefined;
  #started = false;
  #ended = false;
  #waiting = false;
  #received_bytes = 0;
  /** Why the server's part failed; undefined while it did not. */
  failure: RonError | undefined = undefined;

  /** Throws `payload_too_large` when the declared length is too large. */
  constructor(init: AnswerBodyInit) {
    this.#init = init;
    const { req, res, framing, bytes_max } = init;
    // The parser reports its error on the request, then the answer only says `aborted`.
    req.on('error', (error) => (this.#wireError = error));
    res.on('error', (error) => (this.#wireError ??= error));
    if (framing.body === 'length' && framing.bytes > bytes_max) throw tooLarge(bytes_max);
    if (framing.body === 'none') res.resume();
  }

  /** Whether the reader waits for the server at this moment. */
  get waiting(): boolean {
    return this.#waiting;
  }

  /** Bytes as sent, so far. */
  get received_bytes(): number {
    return this.#received_bytes;
  }

  /** All bytes. Only for bodies that fit in memory. */
  async whole(): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  [Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    if (this.#started) throw new RonError('internal', 'a body is read once');
    this.#started = true;
    const { framing, res, decode } = this.#init;
    if (framing.body === 'none') return nothing();
    const coding = res.headers['content-encoding'];
    return !decode || coding === undefined ? this.#wire() : this.#decoded(coding);
  }

  /** Ends the use of the connection: it is kept when the whole answer was read, or arrived unread, else closed. */
  release(): void {
    const { res, framing } = this.#init;
    if (this.#ended || framing.body === 'none') return;
    if (!this.#started && res.complete) res.resume();
    else this.#cut();
  }

  async *#wire(): AsyncGenerator<Uint8Array, void, void> {
    const { res, framing, bytes_max } = this.#init;
    using pieces = new ArrivedPieces(res);
    for (;;) {
      const piece = pieces.take() ?? (await this.#next(pieces));
      if (piece === undefined) break;
      this.#received_bytes += piece.byteLength;
      if (this.#received_bytes > bytes_max) throw this.#fail(tooLarge(bytes_max));
      yield piece;
    }
    const isShort = framing.body === 'length' && this.#received_bytes !== framing.bytes;
    if (!res.complete || isShort) throw this.#fail(judgeWire(this.#wireError));
    this.#ended = true;
  }

  /** Waits for the next piece; undefined at the end. */
  async #next(pieces: ArrivedPieces): Promise<Uint8Array | undefined> {
    const { total, limits } = this.#init;
    using idle = total.child('egress_idle', limits.idle_ms);
    this.#waiting = true;
    try {
      const next = await idle.within(pieces.next());
      this.#waiting = false;
      return next;
    } catch (error) {
      // `waiting` stays set: it shows that the deadline passed while the reader waited for the server.
      if (total.signal.aborted) throw total.signal.reason;
      throw this.#fail(isRonError(error) ? error : judgeWire(this.#wireError ?? error));
    }
  }

  async *#decoded(coding: string): AsyncGenerator<Uint8Array, void, void> {
    const { limits, total } = this.#init;
    const source = Readable.from(this.#wire(), { objectMode: false });
    // Its errors are kept in `failure`; without a listener one would end the process.
    source.on('error', () => undefined);
    try {
      const decoded = decodeBody(source, coding, {
        ratio_max: limits.decompress_ratio_max,
        bytes_max: limits.decompress_bytes_max,
        signal: total.signal,
      });
      for await (const piece of decoded) yield piece as Uint8Array;
    } catch (error) {
      if (this.failure !== undefined) throw this.failure;
      if (isRonError(error, 'bad_request') || isRonError(error, 'unsupported_media'))
        throw this.#fail(badAnswer('encoding', 'the content encoding of the answer cannot be decoded', error));
      throw isRonError(error) ? this.#fail(error) : error;
    } finally {
      source.destroy();
    }
  }

  #fail(error: RonError): RonError {
    this.failure ??= error;
    this.#cut();
    return this.failure;
  }

  /** Closes the connection. `req.destroy` alone leaves it open when the whole answer has arrived. */
  #cut(): void {
    const { req, res } = this.#init;
    req.destroy();
    // Null once the agent has it back.
    (res.socket as typeof res.socket | null)?.destroy();
  }
}

async function* nothing(): AsyncGenerator<Uint8Array, void, void> {}

function tooLarge(bytes_max: number): RonError {
  return new RonError('payload_too_large', `the answer has more than ${bytes_max} bytes`, {
    op: 'egress_answer',
    details: { bytes_max },
  });
}
