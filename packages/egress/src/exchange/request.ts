/**
 * A request to a stranger, and the headers that go with it.
 *
 * Contract: the caller does not control the connection: headers of the framing, of the connection and of proxies are
 * refused, and so is `Host`. Without `accept-encoding` the request accepts `identity` only.
 * Bound: `request_bytes_max` for the body; headers as `node:http` validates them.
 */
import { RonError } from '@ron/kernel/core';
import type { EgressLimits } from '../limits.ts';

export interface EgressRequest {
  readonly url: string;
  /** Default GET. */
  readonly method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  /** Whether the request may be sent twice. Default: GET and HEAD may. */
  readonly idempotent?: boolean;
  /** Bytes of the answer's body. Default and maximum: `body_bytes_max`. */
  readonly bytes_max?: number;
  /** Decodes gzip, br and zstd under the guard. Default false: the body is given as sent. */
  readonly decode?: boolean;
}

const REFUSED = new Set([
  'host',
  'connection',
  'keep-alive',
  'content-length',
  'transfer-encoding',
  'te',
  'trailer',
  'upgrade',
  'expect',
  'cookie',
]);

export function isIdempotent(request: EgressRequest): boolean {
  return request.idempotent ?? (request.method === undefined || request.method === 'GET' || request.method === 'HEAD');
}

/** The headers as sent, without `host`. Throws `validation` for one that the caller must not set. */
export function headersOf(request: EgressRequest, limits: EgressLimits): Record<string, string> {
  const headers: Record<string, string> = { 'accept-encoding': 'identity' };
  for (const [name, value] of Object.entries(request.headers ?? {})) {
    const lower = name.toLowerCase();
    if (REFUSED.has(lower) || lower.startsWith('proxy-'))
      throw new RonError('validation', `the header ${lower} is set by the client itself`);
    headers[lower] = value;
  }
  const { body } = request;
  if (body === undefined) return headers;
  if (body.byteLength > limits.request_bytes_max)
    throw new RonError('payload_too_large', `the request has more than ${limits.request_bytes_max} bytes`);
  headers['content-length'] = String(body.byteLength);
  return headers;
}
