/**
 * Resumable upload of a rereadable body (tus 1.0).
 *
 * Contract: the server's address is compared with the one computed here over all bytes, including those of earlier attempts.
 * After a failure the client queries the offset and resumes; tries without progress are limited. An upload that the server
 * no longer has is restarted once.
 * Bound: two pieces of `PIECE_BYTES`, or of `STREAM_PIECE_BYTES` where streams can be sent; a stream that makes no progress
 * within the stall time is aborted. Cancellation: by the signal; the server keeps the received bytes until the upload expires.
 */
import { isRonError, isTransient, jittered, RonError, sleep, type RetryPolicy } from '@ron/kernel/core';
import { parseDurability, type Address, type Receipt } from '@ron/proto';
import { AnswerError } from './answer-error.ts';
import type { Answer } from './answer.ts';
import { inPieces, type ReplayableBody } from './body.ts';
import { ObjectHasher } from './object-hasher.ts';
import type { OnProgress } from './progress.ts';
import { requireSameAddress } from './receipt.ts';
import { Stall } from './stall.ts';
import { keepAlive, type Transport } from './transport.ts';

/** The body of one request. A whole body up to this size is one plain request. */
export const PIECE_BYTES = 8 * 1024 * 1024;
/** The body of one streamed request. Received bytes count even if the request is interrupted. */
const STREAM_BYTES = 128 * 1024 * 1024;
/** Each piece must be accepted within the stall time: small enough for a slow link. */
const STREAM_PIECE_BYTES = 256 * 1024;

const TUS = { 'Tus-Resumable': '1.0.0' } as const;
const PATCH_HEADERS = { ...TUS, 'Content-Type': 'application/offset+octet-stream' } as const;
/** 409: another offset; 423: the previous request is still active. Both are resolved by querying the offset and retrying. */
const PASSING = new Set([409, 423]);
const GONE = new Set([404, 410]);
const UNSUPPORTED = new Set([404, 405, 501]);
/** A refused creation created nothing. An interrupted one may have; a surplus upload expires. */
const CREATE_POLICY: RetryPolicy = {
  ...jittered({ tries_max: 3, cap_ms: 2000 }),
  isTransient: (error) => error instanceof AnswerError && error.retryable && error.http_status !== 504,
};

export interface TusInit {
  media_type?: string | undefined;
  /** The URL of an earlier upload. */
  resume_url?: string | undefined;
  /** Called with the URL of the upload, for a later `resume_url`. */
  onUploadUrl?: ((url: string) => void | Promise<void>) | undefined;
  onProgress?: OnProgress | undefined;
  signal: AbortSignal;
}

/** The state of an upload on the server. */
interface Held {
  readonly offset: number;
  /** Set when the upload is complete. */
  readonly answer: Answer | undefined;
}

/** Undefined when the server does not support tus. */
export async function uploadByTus(
  transport: Transport,
  body: ReplayableBody,
  init: TusInit,
): Promise<Receipt | undefined> {
  using _ = keepAlive();
  if (init.resume_url !== undefined) {
    const resumed = await new TusUpload(transport, body, init).resume(init.resume_url);
    if (resumed !== undefined) return resumed;
  }
  const upload = new TusUpload(transport, body, init);
  for (let tries = 0; tries < 2; tries++) {
    if (!(await upload.create())) return undefined;
    const receipt = await upload.send({ offset: 0, answer: undefined });
    if (receipt !== undefined) return receipt;
  }
  throw new RonError('unreachable', 'the server lost the upload twice', { op: 'upload' });
}

class TusUpload {
  readonly #transport: Transport;
  readonly #body: ReplayableBody;
  readonly #init: TusInit;
  readonly #hasher = new ObjectHasher();
  #url = '';
  /** The offset that the server has acknowledged. */
  #furthest = 0;

  constructor(transport: Transport, body: ReplayableBody, init: TusInit) {
    this.#transport = transport;
    this.#body = body;
    this.#init = init;
  }

  /** False when the server does not support uploads. */
  async create(): Promise<boolean> {
    const { media_type, signal, onUploadUrl } = this.#init;
    const headers = {
      ...TUS,
      'Upload-Length': String(this.#body.size),
      ...(media_type !== undefined && { 'Upload-Metadata': `filetype ${btoa(media_type)}` }),
    };
    const create = (tried: AbortSignal): Promise<Answer> =>
      this.#transport.send('upload', 'uploads', { method: 'POST', headers, signal: tried });
    let response: Answer;
    try {
      response = await this.#transport.call('upload', create, { signal, policy: CREATE_POLICY });
    } catch (error) {
      if (error instanceof AnswerError && UNSUPPORTED.has(error.http_status)) return false;
      throw error;
    }
    await response.body?.cancel();
    const location = response.headers.get('location');
    if (location === null) throw new RonError('integrity', 'the server created an upload without a Location');
    this.#url = new URL(location, response.url === '' ? this.#transport.base : response.url).href;
    await onUploadUrl?.(this.#url);
    return true;
  }

  /** Resumes an earlier upload; undefined when the server no longer has it, or it has other bytes. */
  async resume(url: string): Promise<Receipt | undefined> {
    this.#url = url;
    try {
      return await this.send(await this.#held());
    } catch (error) {
      if (error instanceof AnswerError && GONE.has(error.http_status)) return undefined;
      // The body has changed since: another size, or another address in the end.
      if (isRonError(error, 'conflict') || isRonError(error, 'integrity')) return undefined;
      throw error;
    }
  }

  /** Sends the missing bytes. Undefined when the server lost the upload meanwhile. */
  async send(begin: Held): Promise<Receipt | undefined> {
    const { resume_policy } = this.#transport;
    let held: Held | undefined = begin;
    let failures = 0;
    let before = this.#furthest;
    for (;;) {
      try {
        held ??= await this.#held();
        return await this.#receipt(held.answer ?? (await this.#sendFrom(held.offset)));
      } catch (error) {
        if (error instanceof AnswerError && GONE.has(error.http_status)) return undefined;
        failures = this.#furthest > before ? 1 : failures + 1;
        before = this.#furthest;
        if (!isPassing(error) || failures >= resume_policy.tries_max) throw error;
        const asked_ms = error instanceof RonError ? (error.retry_after_ms ?? 0) : 0;
        await sleep(resume_policy.backoff_ms(failures - 1) + asked_ms, this.#init.signal, 'client.resume');
        held = undefined;
      }
    }
  }

  /** Sends the body from `offset` on; returns the last response. */
  async #sendFrom(offset: number): Promise<Answer> {
    await this.#hashUpTo(offset);
    return await (this.#transport.sendsStreams ? this.#sendStreams(offset) : this.#sendPieces(offset));
  }

  /** Sends requests one after another, each while the body is read. */
  async #sendStreams(offset: number): Promise<Answer> {
    const pieces = inPieces(this.#body.read(offset), STREAM_PIECE_BYTES);
    let answer: Answer | undefined;
    try {
      for (let at = offset; at < this.#body.size;) {
        const length = Math.min(STREAM_BYTES, this.#body.size - at);
        answer = await this.#patchStream(pieces, at, length);
        at += length;
      }
    } finally {
      await pieces.return();
    }
    return answer ?? (await this.#held()).answer ?? missing();
  }

  async #patchStream(pieces: AsyncGenerator<Uint8Array, void, void>, at: number, length: number): Promise<Answer> {
    using stall = new Stall('upload', this.#transport.stall_ms, this.#init.signal);
    const { deadline_ms } = this.#transport;
    let sent = at;
    const taken = async function* (this: TusUpload): AsyncGenerator<Uint8Array, void, void> {
      while (sent < at + length) {
        // The time for reading the body does not count against the server.
        stall.pause();
        const next = await pieces.next();
        if (next.done === true) throw changedSize();
        this.#hash(next.value, sent);
        sent += next.value.length;
        if (sent > at + length) throw changedSize();
        this.#init.onProgress?.({ done_bytes: sent, total_bytes: this.#body.size });
        stall.beat();
        yield next.value;
      }
      stall.beat(deadline_ms);
    }.bind(this);
    const headers = { ...PATCH_HEADERS, 'Upload-Offset': String(at), 'Content-Length': String(length) };
    const body = ReadableStream.from(taken());
    const { signal } = stall;
    const answer = await this.#transport.send('upload', this.#url, { method: 'PATCH', headers, body, signal });
    return await this.#acknowledged(answer, at + length);
  }

  /** Sends one request for each piece. The next piece is read while one is sent. */
  async #sendPieces(offset: number): Promise<Answer> {
    let at = offset;
    let sending: Promise<Answer> | undefined;
    try {
      for await (const piece of inPieces(this.#body.read(offset), PIECE_BYTES)) {
        this.#hash(piece, at);
        await sending;
        sending = this.#patch(piece, at);
        // Awaited with the next piece; until then a rejection must not count as unhandled.
        sending.catch(() => undefined);
        at += piece.length;
      }
    } catch (error) {
      await sending?.catch(() => undefined);
      throw error;
    }
    if (at !== this.#body.size) throw changedSize();
    if (sending === undefined) return (await this.#held()).answer ?? missing();
    return await sending;
  }

  async #patch(piece: Uint8Array<ArrayBuffer>, at: number): Promise<Answer> {
    const headers = { ...PATCH_HEADERS, 'Upload-Offset': String(at) };
    const once = { ...this.#transport.policy, tries_max: 1 };
    const init = { signal: this.#init.signal, body_bytes: piece.length, policy: once };
    const response = await this.#transport.call(
      'upload',
      (signal) => this.#transport.send('upload', this.#url, { method: 'PATCH', headers, body: piece, signal }),
      init,
    );
    return await this.#acknowledged(response, at + piece.length);
  }

  /** Throws unless the server acknowledges all bytes up to `end`. */
  async #acknowledged(response: Answer, end: number): Promise<Answer> {
    await response.body?.cancel();
    if (response.headers.get('upload-offset') !== String(end)) {
      throw new RonError('unreachable', 'the server accepted only a part of the sent bytes', { op: 'upload' });
    }
    this.#reached(end);
    return response;
  }

  async #held(): Promise<Held> {
    const response = await this.#transport.call(
      'upload',
      (signal) => this.#transport.send('upload', this.#url, { method: 'HEAD', headers: TUS, signal }),
      { signal: this.#init.signal },
    );
    const offset = Number(response.headers.get('upload-offset') ?? NaN);
    const length = Number(response.headers.get('upload-length') ?? NaN);
    if (!Number.isSafeInteger(offset) || offset < 0 || offset > this.#body.size || length !== this.#body.size) {
      throw new RonError('conflict', 'the upload on the server belongs to another file', { op: 'upload' });
    }
    this.#reached(offset);
    return { offset, answer: response.headers.has('ron-address') ? response : undefined };
  }

  #reached(offset: number): void {
    this.#furthest = Math.max(this.#furthest, offset);
    this.#init.onProgress?.({ done_bytes: offset, total_bytes: this.#body.size });
  }

  async #receipt(answer: Answer): Promise<Receipt> {
    const known = answer.headers.has('ron-address') ? answer : ((await this.#held()).answer ?? missing());
    await this.#hashUpTo(this.#body.size);
    const address: Address = this.#hasher.finish();
    const { headers } = known;
    return {
      address: requireSameAddress(headers.get('ron-address'), address),
      size: this.#body.size,
      durability: parseDurability(headers.get('ron-durability')),
    };
  }

  /** Hashes the bytes that the server already has, so that its address can be verified. */
  async #hashUpTo(offset: number): Promise<void> {
    if (this.#hasher.size >= offset) return;
    for await (const chunk of this.#body.read(this.#hasher.size)) {
      this.#init.signal.throwIfAborted();
      this.#hasher.update(chunk.subarray(0, offset - this.#hasher.size));
      if (this.#hasher.size >= offset) return;
    }
  }

  #hash(piece: Uint8Array, at: number): void {
    this.#hasher.update(piece.subarray(Math.max(0, this.#hasher.size - at)));
  }
}

function isPassing(error: unknown): boolean {
  return isTransient(error) || (error instanceof AnswerError && PASSING.has(error.http_status));
}

const changedSize = (): RonError => new RonError('validation', 'the body changed its size while it was sent');

function missing(): never {
  throw new RonError('integrity', 'the server accepted all bytes without stating their address');
}
