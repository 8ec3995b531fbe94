/**
 * The body of `/put`: whole if it is declared to be small, otherwise as chunks.
 *
 * Bound: `WHOLE_BYTES_MAX` for a body of declared length without a coding, however small its pieces are; two chunks for any
 * other. Cancellation: by the stream.
 */
import { codingOf, GrowingBytes, type RouteContext } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { ADDRESS_PREFIX, isAddress, type Address } from '@ron/proto';
import { chunksOf } from './chunks.ts';

type Headers = RouteContext['headers'];

/** Larger bodies, and those of unknown length, are streamed. */
export const WHOLE_BYTES_MAX = 1024 * 1024;

/** The beginning of a body: all of it, or its first chunks and those that may follow. */
type Beginning = { readonly whole: Uint8Array } | StreamedBody;

export interface StreamedBody {
  readonly first: Uint8Array[];
  readonly rest: AsyncGenerator<Uint8Array, void, void>;
}

/** Reads a body until it is complete, or too long to be kept. */
export async function beginningOf({ stream, headers }: Pick<RouteContext, 'stream' | 'headers'>): Promise<Beginning> {
  const length = declaredLength(headers);
  // The listener ends a body at its declared length.
  if (length !== undefined && length <= WHOLE_BYTES_MAX) return { whole: await wholeOf(stream) };
  const rest = chunksOf(stream);
  const first: Uint8Array[] = [];
  while (first.length < 2) {
    const { value, done } = await rest.next();
    if (done === true) return { whole: Buffer.concat(first) };
    first.push(value);
  }
  return { first, rest };
}

async function wholeOf(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const pieces = new GrowingBytes();
  for await (const piece of stream) pieces.add(piece);
  return pieces.whole();
}

/** Does not keep the chunks that it has yielded. */
export async function* concat(
  first: Uint8Array[],
  rest: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, void> {
  for (let chunk = first.shift(); chunk !== undefined; chunk = first.shift()) yield chunk;
  yield* rest;
}

/** The address in `X-Content-B3`: 64 hex digits, with or without `b3:`. */
export function statedAddress(values: readonly string[]): Address | undefined {
  const [value, ...more] = values;
  if (value === undefined) return undefined;
  const address = value.startsWith(ADDRESS_PREFIX) ? value : `${ADDRESS_PREFIX}${value}`;
  if (more.length > 0 || !isAddress(address)) {
    throw new RonError('bad_request', 'X-Content-B3 is one BLAKE3 hash of 64 lower-case hex digits');
  }
  return address;
}

/** Undefined for chunked bodies and for those with a content coding: their decoded length is not known. */
export function declaredLength(headers: Headers): number | undefined {
  const length = headers['content-length'];
  return length === undefined || isCoded(headers) ? undefined : Number(length);
}

export function isCoded(headers: Headers): boolean {
  return codingOf(headers['content-encoding']) !== undefined;
}
