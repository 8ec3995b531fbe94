/** A peer with an unmodified kad-dht: its own server, datastore and `network.sendRequest`. Configured as a member of the network. */
import { identify } from '@libp2p/identify';
import type { Libp2p, PeerId, PeerInfo } from '@libp2p/interface';
import { kadDHT, passthroughMapper } from '@libp2p/kad-dht';
import { noise } from '@libp2p/noise';
import { peerIdFromString } from '@libp2p/peer-id';
import { ping } from '@libp2p/ping';
import { preSharedKey } from '@libp2p/pnet';
import { tcp } from '@libp2p/tcp';
import { yamux } from '@libp2p/yamux';
import { multiaddr } from '@multiformats/multiaddr';
import { RonError } from '@ron/kernel';
import { createLibp2p } from 'libp2p';
import { positionOfKey } from '../../keys.ts';
import type { PeerAnswer, PeerRef, Peers } from '../../peers.ts';
import { endpointOf, endpointUrl } from '../wire/addresses.ts';
import { encodeRecord } from '../wire/message.ts';
import { PROTOCOL, type Kad } from '../node.ts';
import { addrsOfSelf } from '../peer-refs.ts';
import { networkKey } from './test-node.ts';

interface Answer {
  readonly name: string;
  readonly closer: PeerInfo[];
  readonly providers: PeerInfo[];
  readonly record?: { value: Uint8Array };
  readonly error?: unknown;
}

interface StockNetwork {
  sendRequest(to: PeerId, message: object, options: object): AsyncGenerator<Answer>;
  sendMessage(to: PeerId, message: object, options: object): AsyncGenerator<Answer>;
}

type StockNode = Libp2p & { readonly services: { readonly kad: Kad } };

const PATH = { index: 0, queued: 0, running: 0, total: 0 };
const infoOf = ({ id, multiaddrs }: PeerInfo): PeerRef => ({ id: id.toString(), addrs: multiaddrs.map(String) });

export class StockPeers implements Peers {
  readonly node: StockNode;

  private constructor(node: StockNode) {
    this.node = node;
  }

  static async open(network_key = networkKey(), storage_port = 7999): Promise<StockPeers> {
    const node = await createLibp2p({
      addresses: { listen: ['/ip4/127.0.0.1/tcp/0'], appendAnnounce: [`/ip4/127.0.0.1/tcp/${storage_port}/http`] },
      transports: [tcp()],
      connectionProtector: preSharedKey({ psk: network_key }),
      connectionEncrypters: [noise()],
      streamMuxers: [yamux()],
      services: {
        identify: identify(),
        ping: ping(),
        kad: kadDHT({
          protocol: PROTOCOL,
          clientMode: false,
          peerInfoMapper: passthroughMapper,
          allowQueryWithZeroPeers: true,
          validators: { 'ron-name': async () => undefined },
          selectors: { 'ron-name': () => 0 },
        }),
      },
    });
    return new StockPeers(node as unknown as StockNode);
  }

  get self(): string {
    return this.node.peerId.toString();
  }

  get known(): number {
    return this.node.services.kad.routingTable.size;
  }

  get listening(): readonly string[] {
    return addrsOfSelf(this.node);
  }

  async closest(key: Uint8Array, count: number): Promise<PeerRef[]> {
    const ids = this.node.services.kad.routingTable.closestPeers(positionOfKey(key), { count });
    return ids.map((id) => ({ id: id.toString(), addrs: [] }));
  }

  async getProviders(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer> {
    return this.#answer(await this.#send('sendRequest', peer, { type: 'GET_PROVIDERS', key }, signal));
  }

  async getValue(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer> {
    return this.#answer(await this.#send('sendRequest', peer, { type: 'GET_VALUE', key }, signal));
  }

  async putValue(peer: PeerRef, key: Uint8Array, value: Uint8Array, signal: AbortSignal): Promise<void> {
    const record = encodeRecord({ key, value, received: '2026-01-01T00:00:00.000000000Z' });
    await this.#send('sendRequest', peer, { type: 'PUT_VALUE', key, record }, signal);
  }

  async addProvider(peer: PeerRef, keys: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    const multiaddrs = this.node.getMultiaddrs().map(({ bytes }) => bytes);
    const providers = [{ id: this.node.peerId.toMultihash().bytes, multiaddrs }];
    for (const key of keys) await this.#send('sendMessage', peer, { type: 'ADD_PROVIDER', key, providers }, signal);
  }

  async findNode(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerRef[]> {
    const { closer } = await this.#send('sendRequest', peer, { type: 'FIND_NODE', key }, signal);
    return closer.map(infoOf);
  }

  async #send(how: keyof StockNetwork, peer: PeerRef, message: object, signal: AbortSignal): Promise<Answer> {
    const id = peerIdFromString(peer.id);
    if (this.node.getConnections(id).length === 0)
      await this.node.dial(
        peer.addrs.map((addr) => multiaddr(addr)),
        { signal },
      );
    const network = this.node.services.kad.network as StockNetwork;
    let last: Answer | undefined;
    for await (const event of network[how](id, message, { signal, path: PATH })) last = event;
    if (last?.name !== 'PEER_RESPONSE') throw new RonError('unreachable', 'no answer', { cause: last?.error });
    return { ...last, closer: last.closer ?? [], providers: last.providers ?? [] };
  }

  #answer({ closer, providers, record }: Answer): PeerAnswer {
    const claims = providers.map(({ id, multiaddrs }) => {
      const http = multiaddrs.map(({ bytes }) => endpointOf(bytes)).find((endpoint) => endpoint?.kind === 'http');
      return { id: id.toString(), url: http && endpointUrl(http) };
    });
    return { providers: claims, value: record?.value, closer: closer.map(infoOf) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.node.stop();
  }
}
