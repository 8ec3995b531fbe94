/**
 * Reads an object, or a range of it, from a server that is not trusted.
 *
 * Contract: every byte is proven against the address before it is yielded, and the iteration ends only at the end of the
 * object or range. A false answer throws `integrity`, and no false byte was yielded. After a broken connection the read
 * resumes at the first missing byte, while each try makes progress.
 * Bound: one group (64 KiB, or the group size of the server) and the buffers of the connection; one response covers at most
 * `window_bytes`. Overflow: a slow consumer slows the server down. Cancellation: by the signal, or by leaving the loop.
 */
import { isTransient, releaseBytes, RonError, sleep } from '@ron/kernel/core';
import { addressBytes, type Address } from '@ron/proto';
import { SliceError, verifySlice, type Subtree } from '@ron/simd';
import type { ByteStream } from './answer.ts';
import { chunksOf } from './body.ts';
import { GROUP_BYTES } from './object-hasher.ts';
import type { OnProgress } from './progress.ts';
import { Stall } from './stall.ts';
import { keepAlive, unreachable, type Transport } from './transport.ts';

/** A longer range is requested in parts, so that one response is bounded in time. */
export const WINDOW_BYTES = 64 * 1024 * 1024;
/** The largest group size that a server of ron uses. */
export const GROUP_BYTES_MAX = 1024 * 1024;
export const BAO_MEDIA_TYPE = 'application/vnd.ron.bao';

export interface ByteRange {
  readonly offset: number;
  /** Default: to the end. A range that reaches beyond the end is cut there. */
  readonly length?: number | undefined;
}

export interface ReadInit {
  range?: ByteRange | undefined;
  onProgress?: OnProgress | undefined;
  signal?: AbortSignal | undefined;
  /** Default 64 MiB. */
  window_bytes?: number;
  /** Each piece is valid only until the next is requested: its memory is reused. Default: pieces may be kept. */
  transient?: boolean;
  /** The path of the bytes at the service, which accepts `?proof=bao`. Default `o/{address}`. */
  path?: string;
}

export async function* readVerified(
  transport: Transport,
  address: Address,
  init: ReadInit,
): AsyncGenerator<Uint8Array, void, void> {
  const { offset, length = Infinity } = init.range ?? { offset: 0 };
  const signal = transport.signalFor(init.signal);
  const window_bytes = init.window_bytes ?? WINDOW_BYTES;
  const end = offset + length;
  using _ = keepAlive();
  let at = offset;
  let size = Infinity;
  let failures = 0;
  const memoryFor = init.transient === true ? usedAgain() : undefined;
  const { path } = init;
  const onSize = (stated: number): void => {
    if (size !== Infinity && size !== stated) throw lied(address, 'it states two different lengths');
    size = stated;
  };
  while (at < Math.min(end, size)) {
    const wanted = Math.min(window_bytes, end - at);
    try {
      for await (const bytes of slice(transport, address, {
        path,
        offset: at,
        length: wanted,
        signal,
        onSize,
        memoryFor,
      })) {
        yield bytes;
        at += bytes.length;
        failures = 0;
        init.onProgress?.({ done_bytes: at - offset, total_bytes: Math.min(end, size) - offset });
      }
    } catch (error) {
      const policy = at > offset ? transport.resume_policy : transport.policy;
      failures += 1;
      if (!isTransient(error) || failures >= policy.tries_max) throw error;
      const asked_ms = error instanceof RonError ? (error.retry_after_ms ?? 0) : 0;
      await sleep(policy.backoff_ms(failures - 1) + asked_ms, signal, 'client.resume');
    }
  }
  if (offset > 0 && offset >= size) {
    throw new RonError('range_not_satisfiable', `the object has ${size} bytes, the range begins at ${offset}`, {
      details: { size },
    });
  }
}

/** Reuses one buffer while it is large enough. */
function usedAgain(): (bytes: number) => Uint8Array {
  let memory = new Uint8Array(0);
  return (bytes) => {
    if (memory.length < bytes) memory = new Uint8Array(bytes);
    return memory.subarray(0, bytes);
  };
}

export interface SliceInit {
  /** Default `o/{address}`. */
  path?: string | undefined;
  offset: number;
  length: number;
  signal: AbortSignal;
  /** The length that the server states; proven when the slice reached the last group. */
  onSize?: (size: number) => void;
  onSkipped?: (subtree: Subtree, group_bytes: number) => void;
  memoryFor?: ((bytes: number) => Uint8Array) | undefined;
}

/** One response: the bytes of one range, each proven before it is yielded. */
export async function* slice(
  transport: Transport,
  address: Address,
  init: SliceInit,
): AsyncGenerator<Uint8Array, void, void> {
  const { offset, length, onSkipped } = init;
  using stall = new Stall('get', transport.stall_ms, init.signal);
  const { signal } = stall;
  const path = `${init.path ?? `o/${address}`}?proof=bao&offset=${offset}&length=${length}`;
  const response = await transport.send('get', path, { method: 'GET', signal });
  if (response.headers.get('content-type') !== BAO_MEDIA_TYPE || response.body === null) {
    await response.body?.cancel();
    throw lied(address, 'it sent no proof');
  }
  const group_bytes = parseGroupBytes(response.headers.get('ron-group-bytes'));
  if (group_bytes === undefined) throw lied(address, 'it states an impossible group size');
  try {
    yield* paused(
      stall,
      verifySlice(beating(stall, transport.stall_bytes, response.body), {
        hash: addressBytes(address),
        offset,
        length,
        group_bytes,
        ...(init.memoryFor !== undefined && { memoryFor: init.memoryFor }),
        ...(init.onSize !== undefined && { onSize: init.onSize }),
        ...(onSkipped !== undefined && { onSkipped: (subtree) => onSkipped(subtree, group_bytes) }),
      }),
    );
  } catch (error) {
    if (error instanceof SliceError) throw lied(address, error.message, error);
    throw unreachable(error, 'get', transport.shown_url, signal);
  }
}

/** The time of the consumer does not count against the server. */
async function* paused(stall: Stall, bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  for await (const part of bytes) {
    stall.pause();
    yield part;
    stall.beat();
  }
}

async function* beating(stall: Stall, stall_bytes: number, body: ByteStream): AsyncGenerator<Uint8Array, void, void> {
  let received = 0;
  for await (const chunk of chunksOf(body)) {
    received += chunk.length;
    if (received >= stall_bytes) {
      received = 0;
      stall.beat();
    }
    yield chunk;
    // A consumer that requests the next piece no longer uses this one.
    releaseBytes(chunk);
  }
}

/** The group size of an answer, by its header `Ron-Group-Bytes`; undefined if it is impossible. A false one only makes verification fail. */
export function parseGroupBytes(stated: string | null | undefined): number | undefined {
  if (stated === null || stated === undefined) return GROUP_BYTES;
  const group_bytes = /^\d{1,8}$/.test(stated) ? Number(stated) : 0;
  const isPowerOfTwo = Number.isInteger(Math.log2(group_bytes));
  return isPowerOfTwo && group_bytes >= GROUP_BYTES && group_bytes <= GROUP_BYTES_MAX ? group_bytes : undefined;
}

function lied(address: Address, what: string, cause?: unknown): RonError {
  return new RonError('integrity', `the server did not send the bytes of ${address}: ${what}`, { cause });
}
