/**
 * IP addresses and CIDR networks, for the `ip` caveat.
 *
 * Contract: an IPv4 address that arrives mapped into IPv6 (`::ffff:10.0.0.1`, as dual-stack sockets report it) is the IPv4
 * address. A network with host bits set, or of mapped addresses, is refused: it could be read two ways.
 */
import { isIPv4, isIPv6 } from 'node:net';

interface Ip {
  readonly width: 32 | 128;
  readonly value: bigint;
}

export interface Network extends Ip {
  /** How many leading bits an address must share with `value`. */
  readonly bits: number;
  /** As it was written. */
  readonly text: string;
}

const MAPPED_V4 = 0xffffn;

/** The address that `text` spells; a zone (`fe80::1%eth0`) is left out. */
function parseIp(text: string): Ip | undefined {
  if (isIPv4(text)) return { width: 32, value: v4Value(text) };
  const zone = text.indexOf('%');
  const bare = zone < 0 ? text : text.slice(0, zone);
  if (!isIPv6(bare)) return undefined;
  const value = v6Value(bare);
  return value >> 32n === MAPPED_V4 ? { width: 32, value: value & 0xffffffffn } : { width: 128, value };
}

/** `10.0.0.0/8`, `2001:db8::/32`, or one address. Undefined when it is none of these, or not in one way. */
export function parseNetwork(text: string): Network | undefined {
  const match = /^([0-9a-f.:]{2,45})(?:\/(0|[1-9][0-9]{0,2}))?$/.exec(text);
  if (match === null) return undefined;
  const ip = parseIp(match[1] ?? '');
  if (ip === undefined || (ip.width === 32 && !isIPv4(match[1] ?? ''))) return undefined;
  const bits = match[2] === undefined ? ip.width : Number(match[2]);
  if (bits > ip.width) return undefined;
  const hostBits = BigInt(ip.width - bits);
  if ((ip.value >> hostBits) << hostBits !== ip.value) return undefined;
  return { ...ip, bits, text };
}

/** Whether the address lies in one of the networks. What is no address lies in none. */
export function inNetworks(address: string, networks: readonly Network[]): boolean {
  const ip = parseIp(address);
  if (ip === undefined) return false;
  return networks.some(({ width, value, bits }) => {
    return width === ip.width && (ip.value ^ value) >> BigInt(width - bits) === 0n;
  });
}

function v4Value(text: string): bigint {
  return text.split('.').reduce((sum, part) => (sum << 8n) | BigInt(Number(part)), 0n);
}

/** `text` is known to be IPv6. Its last 32 bits may be written as IPv4, and one run of zeros may be `::`. */
function v6Value(text: string): bigint {
  const dotted = /[0-9.]+$/.exec(text)?.[0] ?? '';
  if (dotted.includes('.')) {
    const low = v4Value(dotted);
    const head = text.slice(0, text.length - dotted.length);
    return v6Value(`${head}${(low >> 16n).toString(16)}:${(low & 0xffffn).toString(16)}`);
  }
  const [head = '', tail] = text.split('::');
  const left = groups(head);
  const right = groups(tail ?? '');
  const zeros = Array.from({ length: 8 - left.length - right.length }, () => 0n);
  return [...left, ...zeros, ...right].reduce((sum, group) => (sum << 16n) | group, 0n);
}

function groups(text: string): bigint[] {
  return text === '' ? [] : text.split(':').map((group) => BigInt(`0x${group}`));
}
