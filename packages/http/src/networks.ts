/**
 * IP addresses and CIDR networks as bytes.
 *
 * Contract: `parseAddress` accepts exactly the spellings that `node:net` accepts (dotted decimal, RFC 4291) without a
 * zone, and never throws. `parseNetwork` accepts `ADDRESS/BITS` or a single address. IPv4 and IPv6 are separate here: an
 * IPv4-mapped address is in no IPv4 network until `unmapped` has converted it.
 * Bound: a text of more than 45 characters is refused unread.
 *
 *   const network = parseNetwork('10.0.0.0/8')!;
 *   const address = parseAddress('10.1.2.3')!;
 *   contains(network, address); // true
 */
import { isIPv4, isIPv6 } from 'node:net';

/** 4 bytes for IPv4, 16 for IPv6, in network order. */
export type Address = Uint8Array;

export interface Network {
  readonly address: Address;
  readonly bits: number;
}

/** The longest IPv6 spelling: eight groups, the last two as dotted decimal. */
const ADDRESS_CHARS_MAX = 45;

export function parseAddress(text: string): Address | undefined {
  if (text.length > ADDRESS_CHARS_MAX) return undefined;
  if (isIPv4(text)) return Uint8Array.from(text.split('.'), Number);
  return isIPv6(text) && !text.includes('%') ? parseIPv6(text) : undefined;
}

/**
 * The address of a peer as a socket or a proxy reports it: an IPv4-mapped address is the IPv4 address, and the zone of an
 * IPv6 address (`fe80::1%eth0`) is ignored.
 */
export function parsePeerAddress(text: string): Address | undefined {
  const zone = text.includes(':') ? text.indexOf('%') : -1;
  const address = parseAddress(zone < 0 ? text : text.slice(0, zone));
  return address && unmapped(address);
}

/** `text` is a valid IPv6 address. */
function parseIPv6(text: string): Address {
  const bytes = new Uint8Array(16);
  const [head = '', tail] = text.split('::');
  const front = groupBytes(head);
  bytes.set(front);
  if (tail !== undefined) {
    const back = groupBytes(tail);
    bytes.set(back, 16 - back.length);
  }
  return bytes;
}

function groupBytes(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => {
    if (group.includes('.')) return group.split('.').map(Number);
    const value = Number.parseInt(group, 16);
    return [value >> 8, value & 0xff];
  });
}

/** `hostBits`: whether bits beyond the prefix make the text invalid (the default), or do not matter. */
export function parseNetwork(text: string, hostBits: 'refuse' | 'ignore' = 'refuse'): Network | undefined {
  const slash = text.indexOf('/');
  const address = parseAddress(slash < 0 ? text : text.slice(0, slash));
  if (address === undefined) return undefined;
  const bits_max = address.length * 8;
  if (slash < 0) return { address, bits: bits_max };
  const suffix = text.slice(slash + 1);
  const bits = /^(0|[1-9]\d{0,2})$/.test(suffix) ? Number(suffix) : bits_max + 1;
  if (bits > bits_max) return undefined;
  if (hostBits === 'refuse' && !isZeroBeyond(address, bits)) return undefined;
  return { address, bits };
}

function isZeroBeyond(address: Address, bits: number): boolean {
  return address.every((byte, index) => (byte & ~maskOf(bits - index * 8) & 0xff) === 0);
}

/** The mask of one byte of which the first `bits` belong to the prefix. */
function maskOf(bits: number): number {
  if (bits >= 8) return 0xff;
  return bits <= 0 ? 0 : (0xff << (8 - bits)) & 0xff;
}

export function contains(network: Network, address: Address): boolean {
  if (network.address.length !== address.length) return false;
  for (let index = 0; index * 8 < network.bits; index++) {
    const mask = maskOf(network.bits - index * 8);
    if ((address[index]! & mask) !== (network.address[index]! & mask)) return false;
  }
  return true;
}

/** The prefix of IPv4-mapped IPv6 addresses, `::ffff:0:0/96`. */
const MAPPED_PREFIX = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] as const;

/** The IPv6 form of an address: an IPv4 address as its IPv4-mapped address. */
export function mapped(address: Address): Address {
  return address.length === 4 ? Uint8Array.of(...MAPPED_PREFIX, ...address) : address;
}

/** The IPv4 address of an IPv4-mapped address; every other address as it is. */
export function unmapped(address: Address): Address {
  const isMapped = address.length === 16 && MAPPED_PREFIX.every((byte, index) => address[index] === byte);
  return isMapped ? address.subarray(MAPPED_PREFIX.length) : address;
}
