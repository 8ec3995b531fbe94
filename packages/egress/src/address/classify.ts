/**
 * Classifies an IP address by the IANA special-purpose registries.
 *
 * Contract: `public` only for addresses that belong to hosts on the public Internet. For IPv6 that is an allow-list
 * (2000::/3 without its special blocks), so an unassigned block is refused. Every form that embeds an IPv4 address
 * (mapped, compatible, NAT64, 6to4, Teredo) is refused even if the embedded address is public: the translator that
 * receives it may deliver it to a private network.
 *
 *   classify(parseAddress('169.254.169.254')!); // 'metadata'
 *   classify(parseAddress('8.8.8.8')!); // 'public'
 */
import { contains, parseNetwork, type Address, type Network } from '@ron/http/networks';
import { assert } from '@ron/kernel/core';

export type AddressKind =
  | 'public'
  | 'metadata'
  | 'unspecified'
  | 'loopback'
  | 'private'
  | 'shared'
  | 'link_local'
  | 'documentation'
  | 'benchmark'
  | 'multicast'
  | 'broadcast'
  | 'ipv4_embedded'
  | 'site_local'
  | 'reserved';

/** The first row that contains the address decides. */
const SPECIAL: readonly (readonly [network: string, kind: AddressKind])[] = [
  // Metadata services of cloud providers. One of them has a public address.
  ['169.254.169.254/32', 'metadata'],
  ['169.254.170.2/32', 'metadata'],
  ['169.254.170.23/32', 'metadata'],
  ['100.100.100.200/32', 'metadata'],
  ['168.63.129.16/32', 'metadata'],
  ['192.0.0.192/32', 'metadata'],
  ['fd00:ec2::254/128', 'metadata'],
  ['fd00:ec2::23/128', 'metadata'],
  ['fd20:ce::254/128', 'metadata'],
  ['0.0.0.0/32', 'unspecified'],
  ['0.0.0.0/8', 'reserved'],
  ['10.0.0.0/8', 'private'],
  ['100.64.0.0/10', 'shared'],
  ['127.0.0.0/8', 'loopback'],
  ['169.254.0.0/16', 'link_local'],
  ['172.16.0.0/12', 'private'],
  ['192.0.0.0/24', 'reserved'],
  ['192.0.2.0/24', 'documentation'],
  ['192.88.99.0/24', 'reserved'],
  ['192.168.0.0/16', 'private'],
  ['198.18.0.0/15', 'benchmark'],
  ['198.51.100.0/24', 'documentation'],
  ['203.0.113.0/24', 'documentation'],
  ['224.0.0.0/4', 'multicast'],
  ['255.255.255.255/32', 'broadcast'],
  ['240.0.0.0/4', 'reserved'],
  ['::/128', 'unspecified'],
  ['::1/128', 'loopback'],
  ['::/96', 'ipv4_embedded'],
  ['::ffff:0:0/96', 'ipv4_embedded'],
  ['::ffff:0:0:0/96', 'ipv4_embedded'],
  ['64:ff9b::/96', 'ipv4_embedded'],
  ['64:ff9b:1::/48', 'ipv4_embedded'],
  ['2001::/32', 'ipv4_embedded'],
  ['2001:2::/48', 'benchmark'],
  ['2001::/23', 'reserved'],
  ['2001:db8::/32', 'documentation'],
  ['2002::/16', 'ipv4_embedded'],
  ['3fff::/20', 'documentation'],
  ['fc00::/7', 'private'],
  ['fe80::/10', 'link_local'],
  ['fec0::/10', 'site_local'],
  ['ff00::/8', 'multicast'],
];

function networkOf(text: string): Network {
  const network = parseNetwork(text);
  assert(network !== undefined, `${text} is a network`);
  return network;
}

const ROWS = SPECIAL.map(([text, kind]) => ({ network: networkOf(text), kind }));
const GLOBAL_UNICAST = networkOf('2000::/3');

export function classify(address: Address): AddressKind {
  const row = ROWS.find(({ network }) => contains(network, address));
  if (row !== undefined) return row.kind;
  return address.length === 4 || contains(GLOBAL_UNICAST, address) ? 'public' : 'reserved';
}
