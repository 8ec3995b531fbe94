/**
 * Recognises the simplest request: one GET with ordinary headers, alone in its packet.
 *
 * Contract: Node's own parser reads every recognised text as exactly this request, without a body, on a connection that
 * stays open; the fuzz test compares the two. Rare, unusual or ambiguous requests are not recognised and go to that
 * parser.
 * Bound: `simpleGetBytesMax` of text; holds the headers of the last requests, at most `SIMPLE_GET_BYTES_MAX` each.
 */

export interface SimpleGet {
  readonly target: string;
  readonly host: string;
  /** A correlation id that may be echoed. */
  readonly corr_id: string | undefined;
  readonly if_none_match: string | undefined;
  /** All header lines, for `acceptEncodingIn` and `originIn`. */
  readonly headers: string;
}

/**
 * Every header line below has at least this many bytes (`Host:` has one less, but follows a request line of 16), so a
 * text of `header_count_max` times this has at most `header_count_max` lines.
 */
const LINE_BYTES_MIN = 9;
const SIMPLE_GET_BYTES_MAX = 2048;

export const simpleGetBytesMax = (header_bytes_max: number, header_count_max: number): number =>
  Math.min(SIMPLE_GET_BYTES_MAX, header_bytes_max, header_count_max * LINE_BYTES_MIN);

/**
 * Headers that do not affect the answer, except `Accept-Encoding`, which is read if the object has codings, and `Origin`,
 * which is read if the route allows origins.
 */
const IGNORED =
  'User-Agent|Accept|Accept-Encoding|Accept-Language|Cache-Control|Pragma|Referer|Origin|traceparent|tracestate|Sec-[A-Za-z-]{2,24}';
const line = (name: string, value: string): string => `(?:${name}): ?${value}\r\n`;
/** No leading space: with two ways to match it, the time to refuse a text would double with every line. */
const ANY = '(?:[\\x21-\\x7e][\\x20-\\x7e]*)?';
const OTHERS = `(?:${line(IGNORED, ANY)}|${line('Connection', 'keep-alive')})*`;
const CORR_ID = line('X-Corr-ID', '(?<corr_id>[0-9A-Za-z_-]{1,64})');
const IF_NONE_MATCH = line('If-None-Match', '(?<if_none_match>"[\\x21\\x23-\\x7e]{1,128}")');
const HOST = line('Host', '(?<host>[\\x21-\\x7e]{1,255})');
/** The lines after the request line: one `Host`, then at most one `X-Corr-ID` and one `If-None-Match`, in this order. */
const HEADERS = new RegExp(
  `^${OTHERS}${HOST}${OTHERS}(?:${CORR_ID}${OTHERS})?(?:${IF_NONE_MATCH}${OTHERS})?\r\n$`,
  'i',
);
const TARGET = /^\/[\x21-\x7e]*$/;
const METHOD = 'GET ';
const VERSION = ' HTTP/1.1\r\n';

/** The headers of the last request: the next one usually has the same. */
let known_text = '';
let known: Omit<SimpleGet, 'target'> | undefined;

export function parseSimpleGet(text: string): SimpleGet | undefined {
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

/** One header, read from the header lines of requests. Holds the value of the last lines: the next ones are usually the same. */
class LinesOf {
  readonly #lines: RegExp;
  #headers = '';
  #value: string | undefined;

  constructor(name: string) {
    this.#lines = new RegExp(`^${name}: ?(.*)$`, 'gim');
  }

  in(headers: string): string | undefined {
    if (headers === this.#headers) return this.#value;
    const values = Array.from(headers.matchAll(this.#lines), (match) => match[1]!.trim());
    this.#headers = headers;
    this.#value = values.length === 0 ? undefined : values.join(', ');
    return this.#value;
  }
}

const ACCEPT_ENCODING = new LinesOf('Accept-Encoding');
const ORIGIN = new LinesOf('Origin');

/** The value in the header lines of a recognised request; several lines are joined. */
export function acceptEncodingIn(headers: string): string | undefined {
  return ACCEPT_ENCODING.in(headers);
}

export function originIn(headers: string): string | undefined {
  return ORIGIN.in(headers);
}
