/**
 * A client of storage: objects by address, from a service that need not be trusted.
 *
 * Contract: `put` succeeds only if the service states the address that was computed here; every byte that `get` yields is
 * proven against the address. Only idempotent operations are retried: reads, pins, and writes of rereadable bodies.
 * Bound: a few pieces of 8 MiB, for objects of any size. Cancellation: by the signal of each call and of the client.
 */
import { RonError } from '@ron/kernel/core';
import { addressHex, parseAddress, type Address, type ObjectManifest, type Receipt } from '@ron/proto';
import { combineSubtrees } from '@ron/simd';
import type { Answer } from './answer.ts';
import { inPieces, isReplayable, replayable, streamOf, type PutBody, type ReplayableBody } from './body.ts';
import { addressOf } from './object-hasher.ts';
import type { OnProgress } from './progress.ts';
import { provenPrefix } from './proven-prefix.ts';
import { receiptOf } from './receipt.ts';
import { sendStreamed } from './streamed-upload.ts';
import { Transport, type TransportInit } from './transport.ts';
import { PIECE_BYTES, uploadByTus } from './tus-upload.ts';
import { readVerified, type ReadInit } from './verified-read.ts';

export type { ByteRange, ReadInit } from './verified-read.ts';

export interface CallOptions {
  signal?: AbortSignal | undefined;
}

export interface PutInit extends CallOptions {
  /** Stored with the object. Default: a stored object keeps its type, a new one is `application/octet-stream`. */
  media_type?: string | undefined;
  onProgress?: OnProgress | undefined;
  /** The URL of an earlier upload to resume. Only for rereadable bodies. */
  resume_url?: string | undefined;
  /** Called with the URL of a resumable upload as soon as it exists. */
  onUploadUrl?: ((url: string) => void | Promise<void>) | undefined;
}

/** As the service states it: the size is proven only by reading the object. */
export interface ObjectInfo {
  readonly address: Address;
  readonly size: number;
  readonly media_type: string;
}

export class StorageClient {
  readonly #transport: Transport;

  constructor(init: TransportInit) {
    this.#transport = new Transport(init);
  }

  get url(): string {
    return this.#transport.base.href;
  }

  /** Stores bytes and returns their address once the service has acknowledged them. */
  async put(body: PutBody, init: PutInit = {}): Promise<Receipt> {
    if (!isReplayable(body)) return await this.#putStream(streamOf(body), init);
    const source = replayable(body);
    if (source.size <= PIECE_BYTES) return await this.#putWhole(await readWhole(source), init);
    const signal = this.#transport.signalFor(init.signal);
    const receipt = await uploadByTus(this.#transport, source, { ...init, signal });
    return receipt ?? (await this.#post(source.read(0), source.size, init));
  }

  /** The bytes of an object, or of a range of it, each proven before it is yielded. */
  get(address: Address, init: ReadInit = {}): AsyncGenerator<Uint8Array, void, void> {
    return readVerified(this.#transport, address, init);
  }

  /** A whole object in memory; refused with `payload_too_large` when it has more than `bytes_max`. */
  async bytes(address: Address, bytes_max: number, init: ReadInit = {}): Promise<Uint8Array<ArrayBuffer>> {
    const parts: Uint8Array[] = [];
    let size = 0;
    for await (const part of this.get(address, { ...init, transient: false })) {
      size += part.length;
      if (size > bytes_max) throw new RonError('payload_too_large', `the object has more than ${bytes_max} bytes`);
      parts.push(part);
    }
    const whole = new Uint8Array(size);
    let at = 0;
    for (const part of parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }

  /** The number of leading bytes of an earlier download that are proven against the address. */
  provenPrefix(address: Address, kept: ReplayableBody, init: CallOptions = {}): Promise<number> {
    return provenPrefix(this.#transport, address, kept, init.signal);
  }

  async stat(address: Address, init: CallOptions = {}): Promise<ObjectInfo> {
    const headers = await this.#idempotent('stat', 'HEAD', `o/${address}`, init, (response) => response.headers);
    const size = Number(headers.get('content-length') ?? NaN);
    if (!Number.isSafeInteger(size)) throw new RonError('integrity', 'the server did not state a length');
    return { address, size, media_type: headers.get('content-type') ?? 'application/octet-stream' };
  }

  /** The manifest of an object. The list of subtrees is proven against the address. */
  async manifest(address: Address, init: CallOptions = {}): Promise<ObjectManifest> {
    const manifest = await this.#idempotent('manifest', 'GET', `o/${address}/manifest`, init, readJson<ObjectManifest>);
    if (!isManifestOf(address, manifest)) {
      throw new RonError('integrity', `the server sent a manifest of another object than ${address}`);
    }
    return manifest;
  }

  /** Pins an object, so that it does not expire. */
  async pin(address: Address, init: CallOptions = {}): Promise<void> {
    await this.#idempotent('pin', 'PUT', `o/${address}/pin`, init, ignore);
  }

  async unpin(address: Address, init: CallOptions = {}): Promise<void> {
    await this.#idempotent('pin', 'DELETE', `o/${address}/pin`, init, ignore);
  }

  /** The deadline covers reading the response. */
  #idempotent<T>(
    op: string,
    method: string,
    path: string,
    init: CallOptions,
    read: (response: Answer) => T | Promise<T>,
  ): Promise<T> {
    const work = async (signal: AbortSignal): Promise<T> =>
      read(await this.#transport.send(op, path, { method, signal }));
    return this.#transport.call(op, work, { signal: init.signal });
  }

  /** The service refuses bytes that do not match the address, so transmission errors are detected there. */
  async #putWhole(body: Uint8Array<ArrayBuffer>, init: PutInit): Promise<Receipt> {
    const address = addressOf(body);
    const headers = typeHeader(init);
    const work = async (signal: AbortSignal): Promise<Receipt> =>
      receiptOf(await this.#transport.send('put', `o/${address}`, { method: 'PUT', headers, body, signal }), address);
    const receipt = await this.#transport.call('put', work, { signal: init.signal, body_bytes: body.length });
    init.onProgress?.({ done_bytes: body.length, total_bytes: body.length });
    return receipt;
  }

  /** A short stream is sent by its address; a longer one is sent once, as it arrives. */
  async #putStream(stream: AsyncIterable<Uint8Array>, init: PutInit): Promise<Receipt> {
    const pieces = inPieces(stream, PIECE_BYTES);
    const first = await pieces.next();
    if (first.done === true) return await this.#putWhole(new Uint8Array(0), init);
    const second = await pieces.next();
    if (second.done === true) return await this.#putWhole(first.value, init);
    return await this.#post(joined([first.value, second.value], pieces), undefined, init);
  }

  /** Sent once. */
  async #post(chunks: AsyncIterable<Uint8Array>, total_bytes: number | undefined, init: PutInit): Promise<Receipt> {
    const { response, address } = await sendStreamed(this.#transport, 'put', chunks, {
      method: 'POST',
      path: 'o',
      headers: typeHeader(init),
      total_bytes,
      onProgress: init.onProgress,
      signal: this.#transport.signalFor(init.signal),
    });
    return await receiptOf(response, address);
  }
}

async function* joined(
  first: readonly Uint8Array[],
  rest: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, void> {
  yield* first;
  yield* rest;
}

async function readWhole(body: ReplayableBody): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(body.size);
  let filled = 0;
  for await (const chunk of body.read(0)) {
    if (filled + chunk.length > body.size) throw new RonError('conflict', 'the file grew while it was read');
    bytes.set(chunk, filled);
    filled += chunk.length;
  }
  if (filled < body.size) throw new RonError('conflict', 'the file became shorter while it was read');
  return bytes;
}

async function readJson<T>(response: Answer): Promise<T> {
  return (await response.json()) as T;
}

async function ignore(response: Answer): Promise<void> {
  await response.body?.cancel();
}

/** Without a media type, a stored object keeps its own. */
const typeHeader = ({ media_type }: PutInit): Record<string, string> =>
  media_type === undefined ? {} : { 'Content-Type': media_type };

function isManifestOf(address: Address, manifest: ObjectManifest): boolean {
  const { chunks, subtrees } = manifest;
  if (manifest.address !== address || !Array.isArray(chunks) || !Array.isArray(subtrees)) return false;
  if (subtrees.length === 0) return chunks.length === 1 && chunks[0] === addressHex(address);
  if (subtrees.length < 2 || subtrees.length !== chunks.length) return false;
  if (!subtrees.every((value) => parseAddress(`b3:${value}`) !== undefined)) return false;
  const hash = combineSubtrees(subtrees.map((value) => Uint8Array.fromHex(value)));
  return hash.toHex() === addressHex(address);
}
