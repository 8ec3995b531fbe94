/**
 * IP addresses and CIDR networks of the `ip` caveat.
 *
 * Contract: an IPv4 address that arrives mapped into IPv6 (`::ffff:10.0.0.1`, as dual-stack sockets report it) is the IPv4
 * address. A network with host bits set, of mapped addresses or in upper case is invalid: a caveat has one spelling.
 */
import { contains, parseNetwork as parseCidr, parsePeerAddress, unmapped } from '@ron/http/networks';
import type { Network as Cidr } from '@ron/http/networks';

export interface Network extends Cidr {
  /** As it was written. */
  readonly text: string;
}

const CHARACTERS = /^[0-9a-f.:/]+$/;

/** `10.0.0.0/8`, `2001:db8::/32`, or one address. Undefined when it is not valid. */
export function parseNetwork(text: string): Network | undefined {
  const network = CHARACTERS.test(text) ? parseCidr(text) : undefined;
  return network === undefined || unmapped(network.address) !== network.address ? undefined : { ...network, text };
}

/** Whether the address is in one of the networks. A text that is not an address is in none. */
export function inNetworks(address: string, networks: readonly Network[]): boolean {
  const ip = parsePeerAddress(address);
  return ip !== undefined && networks.some((network) => contains(network, ip));
}
