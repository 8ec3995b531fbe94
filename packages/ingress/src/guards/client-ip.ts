/**
 * The client address of a request, for limits and logs.
 *
 * Contract: the address of the socket, unless that is a trusted proxy; then the rightmost address of `X-Forwarded-For`
 * that is not a trusted proxy itself. Entries to its left may be forged by the client and are ignored. Addresses are
 * normalized (IPv4-mapped ones to IPv4), so that a client has one key. Never throws on a request.
 * Bound: at most 32 hops are read, from the right; compiled proxy lists are kept per list object.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { SocketAddress, isIPv4, isIPv6 } from 'node:net';
import { contains, mapped, parseNetwork, parsePeerAddress, type Address, type Network } from '@ron/http/networks';
import { RonError } from '@ron/kernel';

const HOPS_MAX = 32;
const ADDRESS_CHARS_MAX = 64;

export interface ProxyList {
  /** Whether the address is that of a trusted proxy. */
  check(ip: string): boolean;
}

const compiled = new WeakMap<readonly string[], ProxyList>();

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
  for (let hop = 0; hop < HOPS_MAX && end >= 0 && trusted.check(client); hop += 1) {
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

function proxyList(trusted_proxies: readonly string[]): ProxyList {
  let list = compiled.get(trusted_proxies);
  if (list === undefined) {
    list = compileProxies(trusted_proxies);
    compiled.set(trusted_proxies, list);
  }
  return list;
}

/** Throws `validation` on an entry that is neither an address nor a CIDR block: call it when the configuration is read. */
export function compileProxies(trusted_proxies: readonly string[]): ProxyList {
  const networks = trusted_proxies.map((entry) => {
    const network = parseProxy(entry);
    if (network !== undefined) return network;
    const text = JSON.stringify(entry);
    throw new RonError('validation', `trusted_proxies: ${text} is neither an address nor a CIDR block`);
  });
  return {
    check: (ip) => {
      const address = parsePeerAddress(ip);
      return address !== undefined && networks.some((network) => includes(network, address));
    },
  };
}

/** An IPv4 address is also in the IPv6 networks that contain its mapped address, such as `::/0`. */
const includes = (network: Network, address: Address): boolean =>
  contains(network, network.address.length === 16 ? mapped(address) : address);

/** Operators may write a network by any of its addresses, and an IPv4 network by mapped ones. */
function parseProxy(entry: string): Network | undefined {
  const slash = entry.indexOf('/');
  const ip = normalizeIp(slash < 0 ? entry : entry.slice(0, slash));
  if (ip === undefined) return undefined;
  if (slash < 0) return parseNetwork(ip);
  const bits = entry.slice(slash + 1).replace(/^0{1,2}(?=\d)/, '');
  return parseNetwork(`${ip}/${bits}`, 'ignore');
}
