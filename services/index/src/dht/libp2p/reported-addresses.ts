/**
 * Which addresses that a peer reports of others may be dialed. A peer could have all nodes call the services of their own host.
 *
 * Contract: an address of the host itself or of its link is dialed only if the reporter is connected from such an address, as
 * several nodes on one host are. Addresses of metadata services, multicast and reserved ones never are.
 */
import type { Connection } from '@libp2p/interface';
import { classify, type AddressKind } from '@ron/egress';
import { endpointOf, type Endpoint } from './wire/addresses.ts';

export type IsDialable = (endpoint: Endpoint) => boolean;

const LOCAL: ReadonlySet<AddressKind> = new Set(['loopback', 'link_local']);
const REFUSED: ReadonlySet<AddressKind> = new Set([
  'metadata',
  'unspecified',
  'multicast',
  'broadcast',
  'reserved',
  'ipv4_embedded',
]);

/** `connections`: those of the reporter; called only for local addresses. */
export function dialableFrom(connections: () => readonly Connection[]): IsDialable {
  return (endpoint) => {
    const kind = kindOf(endpoint);
    if (!LOCAL.has(kind)) return !REFUSED.has(kind);
    return connections().some(({ remoteAddr }) => {
      const remote = endpointOf(remoteAddr.bytes);
      return remote !== undefined && kindOf(remote) === kind;
    });
  };
}

const kindOf = ({ ip }: Endpoint): AddressKind => classify(Buffer.from(ip, 'hex'));
