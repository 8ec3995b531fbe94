/** The DHT on libp2p. Imported only by `../joined-peers.ts`, when it is needed. */
export { Libp2pPeers } from './libp2p-peers.ts';
export { Membership } from './membership.ts';
export { readNetworkKey } from './network-key.ts';
