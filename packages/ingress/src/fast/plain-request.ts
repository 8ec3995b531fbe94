/**
 * Recognises the plainest of requests: one GET with ordinary headers, alone in its packet.
 *
 * Promise: Node's own parser would read every recognised text as exactly this request, with no body, on a connection
 * that stays open; the fuzz test compares the two. Whatever is rare, odd or ambiguous is not
 * recognised, and goes to that parser.
 * Bound: `plainBytesMax` of text; keeps the headers of the last request, at most `PLAIN_BYTES_MAX`.
 */

export interface PlainRequest {
  readonly target: string;
  readonly host: string;
  /** A correlation id that may be echoed. */
  readonly corr_id: string | undefined;
  readonly if_none_match: string | undefined;
  /** All header lines, for `acceptEncodingIn`. */
  readonly headers: string;
}

/**
 * Every header line below has at least this many bytes (`Host:` has one less, and comes after a request line of 16): so a
 * text of `header_count_max` times this has no more lines than that.
 */
const LINE_BYTES_MIN = 9;
const PLAIN_BYTES_MAX = 2048;

export const plainBytesMax = (header_bytes_max: number, header_count_max: number): number =>
  Math.min(PLAIN_BYTES_MAX, header_bytes_max, header_count_max * LINE_BYTES_MIN);

/** Headers that change nothing about the answer, but for `Accept-Encoding`, which is read when the object has codings. */
const IGNORED =
  'User-Agent|Accept|Accept-Encoding|Accept-Language|Cache-Control|Pragma|Referer|Origin|traceparent|tracestate|Sec-[A-Za-z-]{2,24}';
const line = (name: string, value: string): string => `(?:${name}): ?${value}\r\n`;
/** Not with a space at its beginning: two ways to read one make the time to refuse double with every line. */
const ANY = '(?:[\\x21-\\x7e][\\x20-\\x7e]*)?';
const OTHERS = `(?:${line(IGNORED, ANY)}|${line('Connection', 'keep-alive')})*`;
const CORR_ID = line('X-Corr-ID', '(?<corr_id>[0-9A-Za-z_-]{1,64})');
const IF_NONE_MATCH = line('If-None-Match', '(?<if_none_match>"[\\x21\\x23-\\x7e]{1,128}")');
const HOST = line('Host', '(?<host>[\\x21-\\x7e]{1,255})');
/** After the request line: one Host, at most one of the two others, in this order or any that clients use. */
const HEADERS = new RegExp(
  `^${OTHERS}${HOST}${OTHERS}(?:${CORR_ID}${OTHERS})?(?:${IF_NONE_MATCH}${OTHERS})?\r\n$`,
  'i',
);
const TARGET = /^\/[\x21-\x7e]*$/;
const METHOD = 'GET ';
const VERSION = ' HTTP/1.1\r\n';

/** The headers of the last request: mostly the next has the same. */
let known_text = '';
let known: Omit<PlainRequest, 'target'> | undefined;

export function plainRequest(text: string): PlainRequest | undefined {
  if (!text.startsWith(METHOD)) return undefined;
  const target_end = text.indexOf(' ', METHOD.length);
  const target = text.slice(METHOD.length, target_end);
  if (!text.startsWith(VERSION, target_end) || !TARGET.test(target)) return undefined;
  const headers = headersIn(text.slice(target_end + VERSION.length));
  if (headers === undefined) return undefined;
  const { host, corr_id, if_none_match } = headers;
  return { target, host, corr_id, if_none_match, headers: headers.headers };
}

function headersIn(text: string): typeof known {
  if (text === known_text) return known;
  const groups = HEADERS.exec(text)?.groups;
  if (groups === undefined) return undefined;
  known_text = text;
  known = { host: groups['host']!, corr_id: groups['corr_id'], if_none_match: groups['if_none_match'], headers: text };
  return known;
}

const ACCEPT_ENCODING = /^Accept-Encoding: ?(.*)$/gim;

/** The value in the header lines of a recognised request; several lines are joined. */
export function acceptEncodingIn(headers: string): string | undefined {
  const values = Array.from(headers.matchAll(ACCEPT_ENCODING), (match) => match[1]!.trim());
  return values.length === 0 ? undefined : values.join(', ');
}
