/**
 * The `Host` allow-list against DNS rebinding: it keeps a foreign web page from reaching a loopback service through the
 * user's browser. (The attacker's name resolves to 127.0.0.1, but the browser still sends that name as Host.)
 *
 * Contract: a Host passes exactly if its name, in any case and with any or no port, is on the list. Never throws.
 * Bound: one pass over the header.
 */
import { BlockList, isIP } from 'node:net';
import type { BindTarget } from '../listen/bind.ts';
import { normalizeIp } from './client-ip.ts';

/** The names that a loopback listener always accepts. */
export const LOOPBACK_HOSTS: readonly string[] = Object.freeze(['localhost', '127.0.0.1', '[::1]']);

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

/** Whether `address` is a loopback address: `localhost` or an IP; other names are not resolved. */
export function isLoopback(address: string): boolean {
  if (address.toLowerCase() === 'localhost') return true;
  const ip = normalizeIp(address);
  return ip !== undefined && LOOPBACK.check(ip, isIP(ip) === 4 ? 'ipv4' : 'ipv6');
}

/** The accepted hosts of a listener at `address`: `configured` ones, and on loopback the loopback names; undefined = any. */
export function hostsFor(address: string, configured: readonly string[]): readonly string[] | undefined {
  // The callers of the Unix socket send `localhost`, which no foreign name can be.
  if (!isLoopback(address)) return configured.length === 0 ? undefined : [...configured, 'localhost'];
  const own = isIP(address) === 6 ? `[${address}]` : address;
  return [...new Set([...LOOPBACK_HOSTS, own, ...configured].map((host) => host.toLowerCase()))];
}

/** The accepted Host values of one listener. The last one that passed is cached: the next is nearly always the same. */
export class HostGuard {
  readonly #hosts: readonly string[] | undefined;
  #known: string | undefined;

  /** The result of `hostsFor`; undefined = any. */
  constructor(hosts: readonly string[] | undefined) {
    this.#hosts = hosts;
  }

  /** The guard of the listener at `target`. A Unix socket accepts any Host, because no web page can reach it. */
  static at(target: BindTarget | undefined, configured: readonly string[]): HostGuard {
    return new HostGuard(target?.kind === 'tcp' ? hostsFor(target.host, configured) : undefined);
  }

  allows(host: string): boolean {
    if (this.#hosts === undefined || host === this.#known) return true;
    if (!hostAllowed(host, this.#hosts)) return false;
    this.#known = host;
    return true;
  }
}

/** `hosts` hold names or addresses without port, IPv6 in brackets, in lower case. */
export function hostAllowed(host: string, hosts: readonly string[]): boolean {
  const name = hostName(host);
  return name !== undefined && hosts.includes(name);
}

/** The name of a Host header in lower case, without its port; undefined when it is malformed. */
export function hostName(host: string): string | undefined {
  if (host.length > 262) return undefined; // 255 for a name, and a port.
  const end = host.startsWith('[') ? host.indexOf(']') + 1 : host.indexOf(':');
  if (end === 0) return undefined;
  const name = end < 0 ? host : host.slice(0, end);
  const port = end < 0 ? '' : host.slice(end);
  if (port !== '' && (!/^:\d{1,5}$/.test(port) || Number(port.slice(1)) > 65535)) return undefined;
  return /^(?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])$/.test(name) ? name.toLowerCase() : undefined;
}
