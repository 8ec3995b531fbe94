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
import { endpointOf, storageAddr } from './wire/addresses.ts';
import { includes } from './serve/kad-answers.ts';
import { PeerDatastore } from './datastore.ts';
import type { PeerRows } from './peer-rows.ts';
import { PendingConnections } from './pending-connections.ts';

export const PROTOCOL = '/ron/kad/1.0.0';
/** The default of `dial_ms`. */
export const DIAL_MS = 600;
/** Streams of one connection. */
export const STREAMS_MAX = 1024;
const CONNECTIONS_MAX = 512;
/** Nodes behind one address, such as those of one machine, start together. */
const CONNECTIONS_PER_S_AND_HOST = 64;
/** `setTimeout` accepts no more. */
const NEVER_MS = 2 ** 31 - 1;
/** The stored form of a peer; more addresses are refused. */
const PEER_BYTES_MAX = 4096;

/** The parts of kad-dht that its interface does not declare. The versions are exact; the contract test uses all of them. */
export interface Kad extends KadDHT {
  readonly routingTable: {
    readonly size: number;
    closestPeers(position: Uint8Array, options: { count: number; exclude?: PeerId[] }): PeerId[];
    remove(peer: PeerId): Promise<void>;
    addEventListener(event: 'peer:add', listener: () => void): void;
    removeEventListener(event: 'peer:add', listener: () => void): void;
  };
  readonly network: object;
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
  /** Time to connect to a peer. Default `DIAL_MS`; tests on a busy machine need more. */
  readonly dial_ms?: number | undefined;
  /** Announced to other peers; undefined: this node provides nothing. */
  readonly storage_url: string | undefined;
  readonly isAllowed: (peer: string) => boolean;
  readonly rows: PeerRows;
  /** Whether the peer was reached at this IP. */
  readonly isOwnIp: (peer: string, ip: string) => boolean;
}

/** Not started. */
export async function createDhtNode(init: DhtNodeInit): Promise<DhtNode> {
  const privateKey = await generateKeyPairFromSeed('Ed25519', init.seed);
  init.seed.fill(0);
  const { dial_ms = DIAL_MS } = init;
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
      dialTimeout: dial_ms,
      addressDialTimeout: dial_ms,
      maxConnections: CONNECTIONS_MAX,
      inboundConnectionThreshold: CONNECTIONS_PER_S_AND_HOST,
      // `PendingConnections` has the limits.
      maxIncomingPendingConnections: Infinity,
      // A dialing node has given up by then.
      inboundUpgradeTimeout: 2 * dial_ms,
      resolvers: {},
    },
    datastore: new PeerDatastore(init.rows),
    peerStore: {
      // Addresses are noted when a peer connects, and a connection can outlive any age. `PeerRows` bounds and expires peers.
      maxAddressAge: Infinity,
      maxPeerAge: Infinity,
      addressFilter: async (peer, { bytes }) => isKept(init, peer.toString(), bytes),
    },
    logger: SILENT,
    services: { identify: identify(), identifyPush: identifyPush(), ping: ping(), kad: kad(dial_ms) },
  })) as unknown as DhtNode;
}

/** Whether the peer store keeps an address: only IPs, few per peer, and a storage URL only with an IP of the peer. */
function isKept({ self, rows, isOwnIp }: DhtNodeInit, peer: string, addr: Uint8Array): boolean {
  if (peer === self) return true;
  const endpoint = endpointOf(addr);
  if (endpoint === undefined) return false;
  const row = rows.byId(peer);
  // Stored before: it was checked then.
  if (row !== undefined && includes(row, addr)) return true;
  if (row !== undefined && row.length + addr.length > PEER_BYTES_MAX) return false;
  return endpoint.kind === 'p2p' || isOwnIp(peer, endpoint.ip);
}

function kad(dial_ms: number): ReturnType<typeof kadDHT> {
  return kadDHT({
    protocol: PROTOCOL,
    // The requests of other peers are answered by `KadAnswers`.
    clientMode: true,
    peerInfoMapper: passthroughMapper,
    allowQueryWithZeroPeers: true,
    maxOutboundStreams: STREAMS_MAX,
    routingTableUpdateMaxQueueSize: 256,
    networkDialTimeout: { maxTimeout: dial_ms },
    // The sweep provides again, and the store expires records.
    reprovide: { interval: NEVER_MS },
  });
}

function gater(isAllowed: (peer: string) => boolean): ConnectionGater {
  const deny = (peer: PeerId): boolean => !isAllowed(peer.toString());
  const pending = new PendingConnections();
  return {
    denyDialPeer: deny,
    denyInboundConnection: (connection) => !pending.admits(connection),
    denyInboundEncryptedConnection: (peer, connection) => {
      pending.onMember(connection);
      return deny(peer);
    },
    denyOutboundEncryptedConnection: deny,
  };
}

/** libp2p formats its messages even if none is printed. */
const silent = Object.assign(() => undefined, {
  enabled: false,
  error: () => undefined,
  trace: () => undefined,
  newScope: () => silent,
}) as unknown as Logger;
const SILENT: ComponentLogger = { forComponent: () => silent };
