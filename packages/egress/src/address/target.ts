/**
 * A URL, checked and in its one canonical spelling.
 *
 * Contract: scheme and port are allow-listed. The WHATWG parser turns every spelling of an IPv4 literal (decimal, octal,
 * hexadecimal, short, full-width, percent-encoded, trailing dot) into dotted decimal; only its result is used from here
 * on, so the checked host is the dialled host. Credentials in the URL, a trailing dot of a name, and characters that the
 * parser would drop or rewrite (controls, blanks, backslash) are refused.
 * Bound: `URL_CHARS_MAX` characters.
 *
 *   const rules = new TargetRules({ schemes: ['https'], ports: [443] });
 *   rules.parse('https://tiles.example/a.png').origin; // 'https://tiles.example'
 */
import { isIP, isIPv6 } from 'node:net';
import { parseAddress } from '@ron/http/networks';
import { RonError } from '@ron/kernel/core';
import { classify } from './classify.ts';

const URL_CHARS_MAX = 8192;
const NAME_CHARS_MAX = 253;
const NAME = /^(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*$/;
/** Not printable ASCII, or a blank or a backslash. Characters beyond ASCII are left to the parser. */
const REWRITTEN = /[^!-[\]-~\u0080-\u{10ffff}]/u;

export type Scheme = 'https' | 'http';

export interface Target {
  /** `https://host[:port]`: the key of connections and breakers. */
  readonly origin: string;
  readonly scheme: Scheme;
  /** A name, or an IP address without brackets. */
  readonly hostname: string;
  readonly isLiteral: boolean;
  readonly port: number;
  /** The `Host` header. */
  readonly host: string;
  /** Path and query. */
  readonly path: string;
}

export interface TargetRulesInit {
  readonly schemes: readonly Scheme[];
  readonly ports: readonly number[] | 'any';
}

const DEFAULT_PORTS: Readonly<Record<Scheme, number>> = { https: 443, http: 80 };

export class TargetRules {
  readonly #init: TargetRulesInit;

  constructor(init: TargetRulesInit) {
    this.#init = init;
  }

  /** Throws `validation` for a malformed URL, `reject_policy` for one that is not allowed. */
  parse(text: string): Target {
    if (text.length > URL_CHARS_MAX || REWRITTEN.test(text) || !URL.canParse(text)) throw malformed();
    const url = new URL(text);
    const scheme = this.#init.schemes.find((each) => url.protocol === `${each}:`);
    if (scheme === undefined) throw refused('scheme', 'the scheme of the URL is not allowed');
    if (url.username !== '' || url.password !== '') throw refused('credentials', 'a URL must not hold credentials');
    const port = url.port === '' ? DEFAULT_PORTS[scheme] : Number(url.port);
    if (this.#init.ports !== 'any' && !this.#init.ports.includes(port))
      throw refused('port', `the port ${port} is not allowed`);
    const hostname = hostnameOf(url);
    if (hostname === undefined) throw malformed();
    const isLiteral = isIP(hostname) !== 0;
    const path = `${url.pathname}${url.search}`;
    return { origin: url.origin, scheme, hostname, isLiteral, port, host: url.host, path };
  }
}

/** A name, or an address without brackets. Undefined for a name that no resolver should see, such as one with a last dot. */
function hostnameOf(url: URL): string | undefined {
  const hostname = url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (isIP(hostname) !== 0) return hostname;
  return hostname.length <= NAME_CHARS_MAX && NAME.test(hostname) ? hostname : undefined;
}

/**
 * The `hostname` that targets of this host have, so that a configured host is found in any spelling. Undefined
 * when the text is more or less than a host: with a port, a scheme, a path or a last dot.
 */
export function parseHostname(text: string): string | undefined {
  const host = isIPv6(text) ? `[${text}]` : text;
  const isHostOnly = /^(\[[^\]]*\]|[^:[\]]+)$/.test(host) && !/[/?#@]/.test(host) && !REWRITTEN.test(host);
  const url = `https://${host}/`;
  return isHostOnly && text.length <= URL_CHARS_MAX && URL.canParse(url) ? hostnameOf(new URL(url)) : undefined;
}

/** Rules that allow the scheme and the port of one configured URL. Throws `validation` when it is not an HTTP URL. */
export function rulesFor(text: string): TargetRulesInit {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const scheme = url?.protocol === 'https:' ? 'https' : url?.protocol === 'http:' ? 'http' : undefined;
  if (url === undefined || scheme === undefined) throw malformed();
  const init = { schemes: [scheme], ports: [url.port === '' ? DEFAULT_PORTS[scheme] : Number(url.port)] } as const;
  new TargetRules(init).parse(text);
  return init;
}

/** Whether requests to this URL are encrypted, or do not leave the machine. False if it is not an HTTP URL. */
export function isTlsOrLoopback(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== 'http:') return url?.protocol === 'https:';
  const hostname = hostnameOf(url) ?? '';
  const address = parseAddress(hostname);
  return hostname === 'localhost' || (address !== undefined && classify(address) === 'loopback');
}

const malformed = (): RonError => new RonError('validation', 'the URL is not valid');

const refused = (reason: string, message: string): RonError =>
  new RonError('reject_policy', message, { details: { reason } });
