/**
 * The client address of a request, for limits and logs.
 *
 * Contract: the address of the socket, unless that is a trusted proxy; then the rightmost address of `X-Forwarded-For`
 * that is not a trusted proxy itself. Entries to its left may be forged by the client and are ignored. Addresses are
 * normalized (IPv4-mapped ones to IPv4), so that a client has one key. Never throws on a request.
 * Bound: at most 32 hops are read, from the right; compiled proxy lists are kept per list object.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { BlockList, SocketAddress, isIP, isIPv4, isIPv6 } from 'node:net';
import { RonError } from '@ron/kernel';

const HOPS_MAX = 32;
const ADDRESS_CHARS_MAX = 64;

const compiled = new WeakMap<readonly string[], BlockList>();

/** `trusted_proxies` are addresses or CIDR blocks, as in the configuration. Pass the same array each time: it is compiled once. */
export function clientIp(
  remote: string | undefined,
  headers: IncomingHttpHeaders,
  trusted_proxies: readonly string[],
): string {
  const peer = normalizeIp(remote ?? '') ?? 'unknown';
  if (trusted_proxies.length === 0) return peer;
  const header = headers['x-forwarded-for'];
  if (header === undefined) return peer;
  const forwarded = typeof header === 'string' ? header : header.join(',');
  const trusted = proxyList(trusted_proxies);
  let client = peer;
  let end = forwarded.length;
  for (let hop = 0; hop < HOPS_MAX && end >= 0 && isTrusted(trusted, client); hop += 1) {
    const comma = end === 0 ? -1 : forwarded.lastIndexOf(',', end - 1);
    // An unreadable hop ends the chain: the last readable address is the client.
    if (end - comma > ADDRESS_CHARS_MAX * 2) return client;
    const previous = normalizeIp(stripPort(forwarded.slice(comma + 1, end).trim()));
    if (previous === undefined) return client;
    client = previous;
    end = comma;
  }
  return client;
}

/** The normalized spelling of an address; undefined if the text is not an address. */
export function normalizeIp(text: string): string | undefined {
  if (text.length > ADDRESS_CHARS_MAX) return undefined;
  if (isIPv4(text)) return text;
  const zone = text.indexOf('%');
  const address = zone < 0 ? text : text.slice(0, zone);
  if (!isIPv6(address)) return undefined;
  // By far the most common case on a dual-stack socket.
  if (address.startsWith('::ffff:') && isIPv4(address.slice(7))) return address.slice(7);
  const canonical = new SocketAddress({ address, family: 'ipv6' }).address;
  return canonical.startsWith('::ffff:') && isIPv4(canonical.slice(7)) ? canonical.slice(7) : canonical;
}

/** `1.2.3.4:80` and `[::1]:80`, as some proxies write them. */
function stripPort(text: string): string {
  const bracketed = /^\[([^\]]*)\](?::\d{1,5})?$/.exec(text);
  if (bracketed !== null) return bracketed[1]!;
  const v4 = /^(\d[\d.]*):\d{1,5}$/.exec(text);
  return v4 === null ? text : v4[1]!;
}

function isTrusted(list: BlockList, ip: string): boolean {
  const version = isIP(ip);
  return version !== 0 && list.check(ip, version === 4 ? 'ipv4' : 'ipv6');
}

function proxyList(trusted_proxies: readonly string[]): BlockList {
  let list = compiled.get(trusted_proxies);
  if (list === undefined) {
    list = compileProxies(trusted_proxies);
    compiled.set(trusted_proxies, list);
  }
  return list;
}

/** Throws `validation` on an entry that is neither an address nor a CIDR block: call it when the configuration is read. */
export function compileProxies(trusted_proxies: readonly string[]): BlockList {
  const list = new BlockList();
  for (const entry of trusted_proxies) {
    const slash = entry.indexOf('/');
    const ip = normalizeIp(slash < 0 ? entry : entry.slice(0, slash));
    const family = ip !== undefined && isIPv4(ip) ? 'ipv4' : 'ipv6';
    const bits_max = family === 'ipv4' ? 32 : 128;
    const bits = slash < 0 ? bits_max : /^\d{1,3}$/.test(entry.slice(slash + 1)) ? Number(entry.slice(slash + 1)) : -1;
    if (ip === undefined || bits < 0 || bits > bits_max)
      throw new RonError(
        'validation',
        `trusted_proxies: ${JSON.stringify(entry)} is neither an address nor a CIDR block`,
      );
    list.addSubnet(ip, bits, family);
  }
  return list;
}
