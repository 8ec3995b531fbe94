/**
 * The four forms of a request target (RFC 9112, section 3.2), reduced to the two that are served.
 *
 * Contract: origin-form (`/path?query`) is returned unchanged. absolute-form (`http://host/path`) is split into the
 * authority, which replaces the Host header (section 3.2.2), and the origin-form target; the scheme must be that of the
 * listener. asterisk-form is served for OPTIONS only, and an absolute-form OPTIONS without path and query means the same
 * (section 3.2.4). Any other form is refused. Neither the authority nor the path is checked here. Never throws.
 * Bound: one search for the end of the authority; holds nothing.
 *
 *   splitTarget('OPTIONS', '*', 'http')                 // { target: '*', authority: undefined }
 *   splitTarget('GET', 'http://localhost/a?b', 'http')  // { target: '/a?b', authority: 'localhost' }
 *   splitTarget('GET', 'https://localhost/a', 'http')   // undefined
 */
export type Scheme = 'http' | 'https';

/** The target that addresses the server as a whole. */
export const SERVER_WIDE = '*';

export interface SplitTarget {
  readonly target: string;
  /** Undefined unless the request named one in its target. */
  readonly authority: string | undefined;
}

/** Undefined when the target has a form that is not served. */
export function splitTarget(method: string, target: string, scheme: Scheme): SplitTarget | undefined {
  if (target.startsWith('/')) return { target, authority: undefined };
  if (target === SERVER_WIDE) return method === 'OPTIONS' ? { target, authority: undefined } : undefined;
  const prefix = `${scheme}://`;
  if (target.slice(0, prefix.length).toLowerCase() !== prefix) return undefined;
  const rest = target.slice(prefix.length);
  const end = rest.search(/[/?#]/);
  const authority = end < 0 ? rest : rest.slice(0, end);
  if (authority === '') return undefined;
  const path = end < 0 ? '' : rest.slice(end);
  if (path === '') return { target: method === 'OPTIONS' ? SERVER_WIDE : '/', authority };
  return { target: path.startsWith('/') ? path : `/${path}`, authority };
}
