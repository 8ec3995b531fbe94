/**
 * Cross-origin reads (CORS): which pages of other origins may read the answers of a route.
 *
 * Contract: only rows with `cors` are readable, and only by the origins of the list; `*` means all. Without a list no answer
 * has a header of CORS. With one that does not contain `*`, every answer of such a row varies by `Origin`. Credentials are never
 * allowed: a page sends a capability itself. `OPTIONS` on these rows answers a preflight; it needs no capability.
 * Bound: holds the lines of the last origin.
 *
 *   createIngress({ cors: () => config.value.cors.origins, routes: [route({ cors: true, ... })], ... });
 */
import { empty, route } from '../table/routes.ts';
import type { Route } from '../table/routes.ts';

/** Response headers that a page may read, besides those that every page may. */
const EXPOSED =
  'Accept-Ranges, Age, Cache-Status, Content-Encoding, Content-Range, ETag, Retry-After, Ron-Group-Bytes, X-Corr-ID, X-Reason';
/** Request headers that a page may send. */
const ALLOWED =
  'Authorization, Cache-Control, If-Match, If-Modified-Since, If-None-Match, If-Range, If-Unmodified-Since, Range, X-Corr-ID';
const METHODS = 'GET, HEAD, OPTIONS';
const PREFLIGHT_AGE_S = '600';
const ANY = '*';
const NONE: readonly string[] = [];

export class Cors {
  readonly #origins: () => readonly string[];
  #last: {
    readonly origins: readonly string[];
    readonly origin: string | undefined;
    readonly lines: readonly string[];
  } = { origins: NONE, origin: undefined, lines: NONE };

  /** `origins` is called for each request: a reload may change them. */
  constructor(origins: () => readonly string[]) {
    this.#origins = origins;
  }

  /** Names and values, to be appended to the head of an answer. `Vary` is a line of its own: a head may have several. */
  linesFor(origin: string | undefined): readonly string[] {
    const origins = this.#origins();
    if (origins.length === 0) return NONE;
    const last = this.#last;
    if (last.origins === origins && last.origin === origin) return last.lines;
    const lines = linesOf(origins, origin);
    this.#last = { origins, origin, lines };
    return lines;
  }

  /** Whether the list has an origin. */
  get isEnabled(): boolean {
    return this.#origins().length > 0;
  }

  /** The same as text, for answers that are written straight to the socket. */
  textFor(origin: string | undefined): string {
    const lines = this.linesFor(origin);
    let text = '';
    for (let i = 0; i < lines.length; i += 2) text += `${lines[i]}: ${lines[i + 1]}\r\n`;
    return text;
  }

  /** One row for each path that pages of other origins may read. */
  preflights(routes: readonly Route[]): Route[] {
    const paths = new Set(routes.filter((row) => row.cors === true).map((row) => row.path));
    return [...paths].map((path) => this.#preflight(path));
  }

  #preflight(path: string): Route {
    return route({
      method: 'OPTIONS',
      path,
      summary: 'Returns the methods and headers that pages of other origins may use (CORS).',
      scope: null,
      lane: 'inline',
      body: 'none',
      cors: true,
      handler: ({ headers }) => empty(204, { Allow: METHODS, ...this.#permission(headers.origin) }),
    });
  }

  #permission(origin: string | undefined): Record<string, string> {
    if (!this.linesFor(origin).includes('Access-Control-Allow-Origin')) return {};
    return {
      'Access-Control-Allow-Methods': METHODS,
      'Access-Control-Allow-Headers': ALLOWED,
      'Access-Control-Max-Age': PREFLIGHT_AGE_S,
    };
  }
}

function linesOf(origins: readonly string[], origin: string | undefined): readonly string[] {
  const allow = (value: string): string[] => [
    'Access-Control-Allow-Origin',
    value,
    'Access-Control-Expose-Headers',
    EXPOSED,
  ];
  if (origins.includes(ANY)) return allow(ANY);
  const isAllowed = origin !== undefined && origins.includes(origin);
  return ['Vary', 'Origin', ...(isAllowed ? allow(origin) : [])];
}
