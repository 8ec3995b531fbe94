/**
 * Decides the status and the headers of an answer to a request for known bytes: the pure part of byte serving.
 *
 * Contract: exactly RFC 9110 for 200, 206, 304, 412 and 416. HEAD ignores `Range`; several ranges or another unit give
 * 200. A 304 carries the headers of the 200, except those that describe the body. Never throws, holds nothing.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { RonError, sched } from '@ron/kernel';
import { evaluateConditions } from './conditional.ts';
import type { Validators } from './conditional.ts';
import { parseRange } from './range.ts';

/** The metadata of the bytes. */
export interface ByteDescription extends Omit<Validators, 'etag'> {
  /** Without one, conditions of the request are ignored and no `ETag` is sent: for answers that are generated for each request. */
  readonly etag?: string;
  readonly size: number;
  readonly media_type: string;
  /** The content coding of these bytes, sent as `Content-Encoding` with `Vary: Accept-Encoding`. Default none. */
  readonly encoding?: string;
  /** When the origin produced them (Unix ms): answers carry `Age`. Default: no `Age`. */
  readonly born_ms?: number;
  /** The value of `Cache-Status` (RFC 9211). With `expires_ms` (Unix ms) it also states the `ttl`, below 0 once it has passed. */
  readonly cache_status?: { readonly text: string; readonly expires_ms?: number | undefined };
  /** Whether `Range` is honoured. Default true. */
  readonly ranges?: boolean;
  /** `Cache-Control`, `Vary` and similar headers: sent with every answer, even without a body. */
  readonly headers?: Readonly<Record<string, string>>;
}

export type ByteAnswer =
  | { readonly status: 200 | 206; readonly start: number; readonly end: number }
  | { readonly status: 304 }
  | { readonly status: 412 | 416; readonly error: RonError };

const NOT_MODIFIED: ByteAnswer = { status: 304 };

export function byteAnswer(method: string, headers: IncomingHttpHeaders, source: ByteDescription): ByteAnswer {
  const { etag, last_modified_ms } = source;
  const verdict = etag === undefined ? 'proceed' : evaluateConditions(method, headers, { etag, last_modified_ms });
  if (verdict === 'not_modified') return NOT_MODIFIED;
  if (verdict === 'precondition_failed') {
    return {
      status: 412,
      error: new RonError('precondition_failed', 'the stored bytes do not match the precondition'),
    };
  }
  const mayRange = method === 'GET' && verdict === 'proceed' && source.ranges !== false;
  const range = mayRange ? parseRange(headers.range, source.size) : undefined;
  if (range?.kind === 'single') return { status: 206, start: range.start, end: range.end };
  if (range?.kind !== 'unsatisfiable') return { status: 200, start: 0, end: source.size };
  const details = { size: source.size };
  return { status: 416, error: new RonError('range_not_satisfiable', `there are ${source.size} bytes`, { details }) };
}

/**
 * The head of a 200, 206 or 304 as a flat list of names and values, which Node writes fastest. `extra` overrides
 * headers of the source with the same name.
 */
export function byteHead(
  source: ByteDescription,
  answer: Extract<ByteAnswer, { status: 200 | 206 | 304 }>,
  extra: Readonly<Record<string, string>> | undefined,
): string[] {
  const head: string[] = [];
  if (answer.status !== 304) {
    head.push('Content-Type', source.media_type, 'Content-Length', String(answer.end - answer.start));
    if (answer.status === 206) head.push('Content-Range', `bytes ${answer.start}-${answer.end - 1}/${source.size}`);
    if (source.encoding !== undefined) head.push('Content-Encoding', source.encoding);
    if (source.last_modified_ms !== undefined)
      head.push('Last-Modified', new Date(source.last_modified_ms).toUTCString());
  }
  if (source.etag !== undefined) head.push('ETag', source.etag);
  head.push('Accept-Ranges', source.ranges === false ? 'none' : 'bytes');
  for (const name in source.headers)
    if (!has(extra, name)) pushHeader(head, answer.status, name, source.headers[name]!);
  for (const name in extra) pushHeader(head, answer.status, name, extra[name]!);
  if (source.encoding !== undefined) varyByEncoding(head);
  return head;
}

/** Adds `Accept-Encoding` to the `Vary` of a head. */
export function varyByEncoding(head: string[]): void {
  for (let i = 0; i < head.length; i += 2) {
    if (head[i]!.length !== 4 || head[i]!.toLowerCase() !== 'vary') continue;
    if (!/(?:^|,)\s*(?:\*|accept-encoding)\s*(?:,|$)/i.test(head[i + 1]!)) head[i + 1] += ', Accept-Encoding';
    return;
  }
  head.push('Vary', 'Accept-Encoding');
}

const AGE_S_MAX = 2 ** 31;

/** The value of `Age` now (RFC 9111, 5.1). */
export function ageNow(born_ms: number): string {
  const age_s = Math.floor((sched.wall_ms() - born_ms) / 1000);
  return String(Math.min(Math.max(age_s, 0), AGE_S_MAX));
}

/** The value of `Cache-Status` now. */
export function cacheStatusNow({ text, expires_ms }: NonNullable<ByteDescription['cache_status']>): string {
  return expires_ms === undefined ? text : `${text}; ttl=${Math.ceil((expires_ms - sched.wall_ms()) / 1000)}`;
}

function pushHeader(head: string[], status: number, name: string, value: string): void {
  if (status !== 304 || !describesBody(name)) head.push(name, value);
}

function has(headers: Readonly<Record<string, string>> | undefined, name: string): boolean {
  if (headers === undefined) return false;
  const lower = name.toLowerCase();
  for (const other in headers) if (other.length === lower.length && other.toLowerCase() === lower) return true;
  return false;
}

/** Content-Encoding and similar headers; not Content-Location, which a 304 repeats, nor policies with a similar name. */
function describesBody(name: string): boolean {
  return /^content-(?:encoding|language|type|length|range|disposition|digest)$/i.test(name);
}
