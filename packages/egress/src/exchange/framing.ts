/**
 * How the body of an answer is delimited.
 *
 * Contract: a body has exactly one `Content-Length`, or exactly `Transfer-Encoding: chunked`. A body that only the end of
 * the connection delimits is refused, because its truncation cannot be detected. So are repeated and combined forms.
 *
 *   framingOf('GET', 200, rawHeaders); // { body: 'length', bytes: 12 }
 */
import { badAnswer } from './errors.ts';

export type Framing =
  | { readonly body: 'none' }
  | { readonly body: 'length'; readonly bytes: number }
  | { readonly body: 'chunked' };

/** `raw_headers` alternates names and values, as in `IncomingMessage`. */
export function framingOf(method: string, status: number, raw_headers: readonly string[]): Framing {
  const lengths = valuesOf(raw_headers, 'content-length');
  const codings = valuesOf(raw_headers, 'transfer-encoding');
  if (lengths.length > 1) throw badAnswer('framing', 'the answer has several Content-Length headers');
  if (codings.length > 0 && lengths.length > 0)
    throw badAnswer('framing', 'the answer has both Content-Length and Transfer-Encoding');
  const isChunked = codings.length === 1 && codings[0]!.toLowerCase() === 'chunked';
  if (codings.length > 0 && !isChunked) throw badAnswer('framing', 'the transfer coding of the answer is not chunked');
  const length = lengths[0];
  if (length !== undefined && !/^\d{1,15}$/.test(length))
    throw badAnswer('framing', 'the Content-Length of the answer is not a number');
  if (method === 'HEAD' || status === 204 || status === 304) return { body: 'none' };
  if (isChunked) return { body: 'chunked' };
  if (length === undefined) throw badAnswer('framing', 'the answer does not delimit its body');
  return { body: 'length', bytes: Number(length) };
}

function valuesOf(raw_headers: readonly string[], name: string): string[] {
  return raw_headers.filter((_value, index) => index % 2 === 1 && raw_headers[index - 1]!.toLowerCase() === name);
}
