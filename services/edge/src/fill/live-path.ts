/**
 * The paths of `live/`: origin, path and query in their one spelling.
 *
 * Contract: two requests get the same key exactly if they ask the same origin for the same decoded path and parameters. The host
 * is accepted in the spelling of a URL only, in any case: no other form of an IP address, no last dot, no credentials, no
 * characters beyond ASCII. Dot segments, empty segments, backslashes and control characters are refused, so that no
 * server reads the path differently. The key, decoded and parsed again, gives the same key, and no URL parser changes `url`.
 * Bound: `KEY_CHARS_MAX` characters.
 *
 *   parseLive('tiles.example.org/a b.png', { size: '2' }, ['size']);
 *   // key: live/tiles.example.org/a%20b.png?size=2, url: https://tiles.example.org/a%20b.png?size=2
 */
import { RonError } from '@ron/kernel';
import type { AssetKey } from '../assets/asset-key.ts';
import type { Missing } from './fills.ts';

export type LiveAsset = Extract<Missing, { kind: 'live' }>;

export const LIVE_PREFIX = 'live/';
const KEY_CHARS_MAX = 4096;
const HOST_CHARS_MAX = 253;
const LABEL = '[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?';
/** Compared before the case is changed: the lower case of some characters beyond ASCII is a letter of ASCII. */
const HOST = new RegExp(`^(?:${LABEL}(?:\\.${LABEL})*|\\[[0-9a-f:.]+\\])$`, 'i');
const ORIGINS_MAX = 256;
/** Parsed origins by their text. */
const origins = new Map<string, string>();
const PORT = /^[1-9][0-9]{0,4}$/;
/** Controls, and the backslash, which some servers read as a slash. */
// oxlint-disable-next-line no-control-regex
const REFUSED = /[\u0000-\u001f\u007f\\]/;
/** A dot segment; `..;x` counts as one, because some servers read it so. */
const DOT_SEGMENT = /^\.{1,2}(?:;.*)?$/;

/**
 * `path`: host, port and path, decoded once. `query`: decoded once. `allowed`: `fill.query`. Throws `bad_request` or
 * `uri_too_long`.
 */
export function parseLive(
  path: string,
  query: Readonly<Record<string, string>>,
  allowed: readonly string[],
): LiveAsset {
  const slash = path.indexOf('/');
  const host = slash < 0 ? path : path.slice(0, slash);
  const origin = parseOrigin(`https://${host}`);
  if (origin === undefined) throw badRequest('the host of the path is not a host name or host:port');
  const below = encodePath(slash < 0 ? '/' : path.slice(slash)) + encodeQuery(query, allowed);
  const key = `${LIVE_PREFIX}${origin.slice('https://'.length)}${below}`;
  if (key.length > KEY_CHARS_MAX)
    throw new RonError('uri_too_long', `the path is longer than ${KEY_CHARS_MAX} characters`);
  return { kind: 'live', key, origin, url: origin + below };
}

/** Whether all parameters of a key are in `allowed`, which a reload may have changed since the key was made. */
export function hasAllowedQuery(key: AssetKey, allowed: readonly string[]): boolean {
  const at = key.indexOf('?');
  if (at < 0) return true;
  // Names that may be allowed have no encoded characters.
  return key
    .slice(at + 1)
    .split('&')
    .every((parameter) => allowed.includes(parameter.slice(0, parameter.indexOf('='))));
}

/** The origin in its one spelling; undefined for text that is not `https://host[:port]`. The port 443 is left out. */
export function parseOrigin(text: string): string | undefined {
  const known = origins.get(text);
  if (known !== undefined) return known;
  const origin = checkOrigin(text);
  // Parsing takes longer than the rest of a path. Only valid hosts are kept, and few of them.
  if (origin !== undefined && text.length <= HOST_CHARS_MAX) {
    if (origins.size >= ORIGINS_MAX) origins.clear();
    origins.set(text, origin);
  }
  return origin;
}

function checkOrigin(text: string): string | undefined {
  const [, host = '', port] = /^https:\/\/(\[[^\]]*\]|[^:]*)(?::(.*))?$/is.exec(text) ?? [];
  if (host.length > HOST_CHARS_MAX || !HOST.test(host)) return undefined;
  if (port !== undefined && !PORT.test(port)) return undefined;
  const given = `https://${host.toLowerCase()}${port === undefined || port === '443' ? '' : `:${port}`}`;
  // A parser that writes the host differently has read a number, a short form or an invalid name.
  return URL.canParse(given) && new URL(given).origin === given ? given : undefined;
}

function encodePath(path: string): string {
  if (REFUSED.test(path)) throw badRequest('the path contains a control character or a backslash');
  const segments = path.slice(1).split('/');
  return segments.map((segment, at) => `/${encodeSegment(segment, at === segments.length - 1)}`).join('');
}

function encodeSegment(segment: string, isLast: boolean): string {
  if (DOT_SEGMENT.test(segment)) throw badRequest('the path contains a dot segment');
  if (segment === '' && !isLast) throw badRequest('the path contains an empty segment');
  // These delimiters have no meaning of their own within a segment (RFC 3986, 3.3).
  return encodeText(segment).replace(/%(?:24|26|2B|2C|3B|3D|3A|40)/g, decodeURIComponent);
}

function encodeQuery(query: Readonly<Record<string, string>>, allowed: readonly string[]): string {
  const given = Object.entries(query);
  if (given.length === 0) return '';
  const sorted = given.toSorted(([one], [other]) => (one < other ? -1 : 1));
  const parameters = sorted.map(([name, value]) => {
    if (!allowed.includes(name)) throw badRequest('the query has a parameter that is not in fill.query');
    return `${encodeText(name)}=${encodeText(value)}`;
  });
  return `?${parameters.join('&')}`;
}

/** Everything but letters, digits and `-_.~`. */
function encodeText(text: string): string {
  if (!text.isWellFormed()) throw badRequest('the path is not valid Unicode');
  return encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

const badRequest = (message: string): RonError => new RonError('bad_request', message);
