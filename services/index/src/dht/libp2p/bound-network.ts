/**
 * Bounds the requests that kad-dht itself sends to refresh its table: it would read answers of 4 MiB and dial every peer in them.
 * Uses the same codec as our own requests.
 */
import { peerIdFromMultihash } from '@libp2p/peer-id';
import { multiaddr, type Multiaddr } from '@multiformats/multiaddr';
import type { PeerId, Stream } from '@libp2p/interface';
import { NEVER } from '@ron/kernel';
import * as Digest from 'multiformats/hashes/digest';
import { endpointOf, endpointText } from './wire/addresses.ts';
import { KeptStream } from './wire/kept-stream.ts';
import { encodeMessage, KAD, type KadPeer, type KadType } from './wire/message.ts';
import type { DhtNode } from './node.ts';
import { peerIdText } from './peer-refs.ts';
import { dialableFrom, type IsDialable } from './reported-addresses.ts';

/** A message as kad-dht represents it. */
interface StockMessage {
  type: string;
  key?: Uint8Array | undefined;
  record?: Uint8Array | undefined;
  closer: { id: Uint8Array; multiaddrs: Uint8Array[] }[];
  providers: { id: Uint8Array; multiaddrs: Uint8Array[] }[];
}

interface Network {
  _writeReadMessage(
    stream: Stream,
    message: Partial<StockMessage>,
    options: { signal?: AbortSignal },
  ): Promise<StockMessage>;
  safeDispatchEvent(name: 'peer', init: { detail: { id: PeerId; multiaddrs: Multiaddr[] } }): void;
}

export function boundNetwork(node: DhtNode): void {
  const network = node.services.kad.network as Network;
  // oxlint-disable-next-line no-underscore-dangle -- the name in kad-dht
  network._writeReadMessage = async (stream, message, { signal = NEVER }) => {
    const type = KAD[message.type as keyof typeof KAD] satisfies KadType;
    const kept = new KeptStream('', stream);
    const answer = await kept.exchange(encodeMessage({ type, key: message.key, record: message.record }), signal);
    const isDialable = dialableFrom(() => node.getConnections().filter(({ streams }) => streams.includes(stream)));
    const closer = answer.closer.filter(isValid);
    const providers = answer.providers.filter(isValid);
    for (const peer of [...closer, ...providers])
      network.safeDispatchEvent('peer', { detail: infoOf(peer, isDialable) });
    return {
      type: message.type!,
      key: answer.key,
      record: answer.record,
      closer: closer.map((peer) => stockPeer(peer, isDialable)),
      providers: providers.map((peer) => stockPeer(peer, isDialable)),
    };
  };
}

const isValid = ({ id }: KadPeer): boolean => peerIdText(id) !== undefined;

/** The addresses that can be dialed. */
const dialable = ({ addrs }: KadPeer, isDialable: IsDialable): Multiaddr[] =>
  addrs.flatMap((addr) => {
    const endpoint = endpointOf(addr);
    return endpoint?.kind === 'p2p' && isDialable(endpoint) ? [multiaddr(endpointText(endpoint))] : [];
  });

const stockPeer = (peer: KadPeer, isDialable: IsDialable): { id: Uint8Array; multiaddrs: Uint8Array[] } => ({
  id: peer.id,
  multiaddrs: dialable(peer, isDialable).map(({ bytes }) => bytes),
});

const infoOf = (peer: KadPeer, isDialable: IsDialable): { id: PeerId; multiaddrs: Multiaddr[] } => ({
  id: peerIdFromMultihash(Digest.decode(peer.id)),
  multiaddrs: dialable(peer, isDialable),
});
