/**
 * Calls that carry JSON both ways, below one prefix of a service.
 *
 * Contract: a response that is not JSON, or exceeds the bound, is an `integrity` error. A call may be sent twice, so only
 * idempotent calls belong here.
 * Bound: answers of `ANSWER_BYTES_MAX`. Cancellation: by the transport's signal and by each call's.
 */
import { RonError } from '@ron/kernel/core';
import type { Answer } from './answer.ts';
import { Transport, type TransportInit } from './transport.ts';

export type { AuthorizedRequest } from './transport.ts';

const ANSWER_BYTES_MAX = 4 * 1024 * 1024;

export class JsonCalls {
  readonly #transport: Transport;
  readonly #prefix: string;

  /** `prefix` as in `v1/passport/`. */
  constructor(prefix: string, init: TransportInit) {
    this.#prefix = prefix;
    this.#transport = new Transport(init);
  }

  get url(): string {
    return this.#transport.base.href;
  }

  /** Undefined when the answer is empty. */
  async get<T>(op: string, path: string, signal?: AbortSignal): Promise<T | undefined> {
    return await this.#call(op, path, { method: 'GET' }, signal);
  }

  /** Sends no body if it is undefined. */
  async post<T>(op: string, path: string, body: unknown, signal?: AbortSignal): Promise<T> {
    const answer = await this.#call<T>(op, path, { method: 'POST', ...(body !== undefined && jsonBody(body)) }, signal);
    if (answer === undefined) throw new RonError('integrity', 'the server sent an empty response', { op });
    return answer;
  }

  /** A POST without an answer. */
  async run(op: string, path: string, body: unknown, signal?: AbortSignal): Promise<void> {
    await this.#call(op, path, { method: 'POST', ...jsonBody(body) }, signal);
  }

  /** Undefined when the answer is empty. Sends no body if it is undefined. */
  async put<T>(op: string, path: string, body: unknown, signal?: AbortSignal): Promise<T | undefined> {
    return await this.#call(op, path, { method: 'PUT', ...(body !== undefined && jsonBody(body)) }, signal);
  }

  async delete(op: string, path: string, signal?: AbortSignal): Promise<void> {
    await this.#call(op, path, { method: 'DELETE' }, signal);
  }

  async #call<T>(
    op: string,
    path: string,
    init: { method: string; headers?: Record<string, string>; body?: Uint8Array<ArrayBuffer> },
    signal: AbortSignal | undefined,
  ): Promise<T | undefined> {
    const work = async (within: AbortSignal): Promise<T | undefined> =>
      await readJson<T>(await this.#transport.send(op, this.#prefix + path, { ...init, signal: within }), op);
    return await this.#transport.call(op, work, { signal });
  }
}

export function jsonBody(body: unknown): { headers: Record<string, string>; body: Uint8Array<ArrayBuffer> } {
  return { headers: { 'Content-Type': 'application/json' }, body: new TextEncoder().encode(JSON.stringify(body)) };
}

/** Undefined when the answer is empty. */
export async function readJson<T>(response: Answer, op: string): Promise<T | undefined> {
  if (response.status === 204) return undefined;
  const length = Number(response.headers.get('content-length') ?? NaN);
  if (!(length <= ANSWER_BYTES_MAX))
    throw new RonError('integrity', 'the server sent a response that exceeds the limit', { op });
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new RonError('integrity', 'the server sent a response that is not JSON', { op });
    throw error;
  }
}
