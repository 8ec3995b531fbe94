/** The libp2p node of the DHT: transports, encryption, members, and kad-dht for the routing table and its refresh. */
import { generateKeyPairFromSeed } from '@libp2p/crypto/keys';
import { identify, identifyPush } from '@libp2p/identify';
import type { ComponentLogger, ConnectionGater, Libp2p, Logger, PeerId } from '@libp2p/interface';
import { kadDHT, passthroughMapper, type KadDHT } from '@libp2p/kad-dht';
import { noise } from '@libp2p/noise';
import { ping } from '@libp2p/ping';
import { preSharedKey } from '@libp2p/pnet';
import { tcp } from '@libp2p/tcp';
import { yamux } from '@libp2p/yamux';
import { createLibp2p } from 'libp2p';
import type { Names } from '../../publish/names.ts';
import { NAME_NAMESPACE } from '../keys.ts';
import { endpointOf, storageAddr } from './addresses.ts';
import { PEER_AGE_MS, type IndexDatastore } from './datastore.ts';
import { selectNameValue, verifyNameValue } from './name-records.ts';
import type { KadRpc } from './serve.ts';

export const PROTOCOL = '/ron/kad/1.0.0';
const DIAL_MS = 600;
const STREAMS_MAX = 1024;
const CONNECTIONS_MAX = 512;
/** Nodes behind one address, such as those of one machine, start together. */
const CONNECTIONS_PER_S_AND_HOST = 64;
/** `setTimeout` accepts no more. */
const NEVER_MS = 2 ** 31 - 1;
/** The stored form of a peer; more addresses are refused. */
const PEER_BYTES_MAX = 4096;

/** The parts of kad-dht that its interface does not declare. The versions are exact; the contract test uses all of them. */
export interface Kad extends KadDHT {
  readonly rpc: KadRpc;
  readonly routingTable: {
    readonly size: number;
    closestPeers(position: Uint8Array, options: { count: number }): PeerId[];
    remove(peer: PeerId): Promise<void>;
  };
  readonly network: object;
  setMode(mode: 'client' | 'server'): Promise<void>;
}

export interface DhtNode extends Libp2p {
  readonly services: { readonly kad: Kad };
}

export interface DhtNodeInit {
  /** The peer id of this node. */
  readonly self: string;
  /** The seed of the node key. Zeroed. */
  readonly seed: Uint8Array;
  readonly network_key: Uint8Array;
  readonly listen: string;
  /** Announced to other peers; undefined: this node provides nothing. */
  readonly storage_url: string | undefined;
  readonly isAllowed: (peer: string) => boolean;
  readonly names: Pick<Names, 'accepts'>;
  readonly datastore: IndexDatastore;
  /** Whether the peer was reached at this IP. */
  readonly isOwnIp: (peer: string, ip: string) => boolean;
}

/** Not started. */
export async function createDhtNode(init: DhtNodeInit): Promise<DhtNode> {
  const privateKey = await generateKeyPairFromSeed('Ed25519', init.seed);
  init.seed.fill(0);
  const addr = init.storage_url === undefined ? undefined : storageAddr(init.storage_url);
  return (await createLibp2p({
    start: false,
    privateKey,
    nodeInfo: { userAgent: 'ron' },
    addresses: { listen: [init.listen], appendAnnounce: addr === undefined ? [] : [addr] },
    transports: [tcp()],
    connectionProtector: preSharedKey({ psk: init.network_key }),
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    connectionGater: gater(init.isAllowed),
    connectionManager: {
      dialTimeout: DIAL_MS,
      addressDialTimeout: DIAL_MS,
      maxConnections: CONNECTIONS_MAX,
      inboundConnectionThreshold: CONNECTIONS_PER_S_AND_HOST,
      maxIncomingPendingConnections: CONNECTIONS_PER_S_AND_HOST,
      inboundUpgradeTimeout: 5 * DIAL_MS,
      resolvers: {},
    },
    datastore: init.datastore,
    peerStore: {
      maxAddressAge: PEER_AGE_MS,
      maxPeerAge: PEER_AGE_MS,
      addressFilter: async (peer, { bytes }) => isKept(init, peer.toString(), bytes),
    },
    logger: SILENT,
    services: { identify: identify(), identifyPush: identifyPush(), ping: ping(), kad: kad(init.names) },
  })) as unknown as DhtNode;
}

/** Whether the peer store keeps an address: only IPs, few per peer, and a storage URL only with an IP of the peer. */
function isKept({ self, datastore, isOwnIp }: DhtNodeInit, peer: string, addr: Uint8Array): boolean {
  if (peer === self) return true;
  const endpoint = endpointOf(addr);
  if (endpoint === undefined) return false;
  const row = datastore.peerRow(peer);
  // Stored before: it was checked then.
  if (row !== undefined && Buffer.from(row.buffer, row.byteOffset, row.length).includes(addr)) return true;
  if (row !== undefined && row.length + addr.length > PEER_BYTES_MAX) return false;
  return endpoint.kind === 'p2p' || isOwnIp(peer, endpoint.ip);
}

function kad(names: Pick<Names, 'accepts'>): ReturnType<typeof kadDHT> {
  return kadDHT({
    protocol: PROTOCOL,
    clientMode: false,
    peerInfoMapper: passthroughMapper,
    allowQueryWithZeroPeers: true,
    maxInboundStreams: STREAMS_MAX,
    maxOutboundStreams: STREAMS_MAX,
    routingTableUpdateMaxQueueSize: 256,
    networkDialTimeout: { maxTimeout: DIAL_MS },
    // The sweep provides again, and the store expires records.
    reprovide: { interval: NEVER_MS },
    validators: {
      [NAME_NAMESPACE]: async (key, value) => void (await verifyNameValue(names, key, value)),
    },
    selectors: { [NAME_NAMESPACE]: (_key, values) => selectNameValue(values) },
  });
}

function gater(isAllowed: (peer: string) => boolean): ConnectionGater {
  const deny = (peer: PeerId): boolean => !isAllowed(peer.toString());
  return { denyDialPeer: deny, denyInboundEncryptedConnection: deny, denyOutboundEncryptedConnection: deny };
}

/** libp2p formats its messages even if none is printed. */
const silent = Object.assign(() => undefined, {
  enabled: false,
  error: () => undefined,
  trace: () => undefined,
  newScope: () => silent,
}) as unknown as Logger;
const SILENT: ComponentLogger = { forComponent: () => silent };
