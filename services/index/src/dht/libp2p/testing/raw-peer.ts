/** A member of the network with a handler of its own for the protocol of the DHT: for peers that break the rules. */
import { identify } from '@libp2p/identify';
import type { Connection, Libp2p, Stream } from '@libp2p/interface';
import { noise } from '@libp2p/noise';
import { ping } from '@libp2p/ping';
import { preSharedKey } from '@libp2p/pnet';
import { tcp } from '@libp2p/tcp';
import { yamux } from '@libp2p/yamux';
import { multiaddr } from '@multiformats/multiaddr';
import { createLibp2p } from 'libp2p';
import type { PeerRef } from '../../peers.ts';
import { PROTOCOL } from '../node.ts';
import { addrsOfSelf } from '../peer-refs.ts';
import { networkKey } from './test-node.ts';

/** Called with each stream that a peer opens; its data arrives by the event `message`. */
export type Behavior = (stream: Stream, connection: Connection) => void;

export class RawPeer implements AsyncDisposable {
  readonly node: Libp2p;
  #behavior: Behavior = () => undefined;
  #streams: Stream[] = [];

  private constructor(node: Libp2p) {
    this.node = node;
  }

  static async open(network_key = networkKey()): Promise<RawPeer> {
    const node = await createLibp2p({
      addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
      transports: [tcp()],
      connectionProtector: preSharedKey({ psk: network_key }),
      connectionEncrypters: [noise()],
      streamMuxers: [yamux()],
      services: { identify: identify(), ping: ping() },
    });
    const peer = new RawPeer(node);
    await node.handle(PROTOCOL, (stream, connection) => peer.#serve(stream, connection), { maxInboundStreams: 1024 });
    return peer;
  }

  /** For streams that are opened from now on; resets the others. */
  set behave(behavior: Behavior) {
    this.#behavior = behavior;
    for (const stream of this.#streams.splice(0)) stream.abort(new Error('new behavior'));
  }

  #serve(stream: Stream, connection: Connection): void {
    this.#streams.push(stream);
    this.#behavior(stream, connection);
  }

  get ref(): PeerRef {
    return { id: this.node.peerId.toString(), addrs: addrsOfSelf(this.node) };
  }

  get id(): Uint8Array {
    return this.node.peerId.toMultihash().bytes;
  }

  async openStream(to: PeerRef): Promise<Stream> {
    const connection = await this.node.dial(to.addrs.map((addr) => multiaddr(addr)));
    return await connection.newStream(PROTOCOL);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.node.stop();
  }
}

/** Answers each message with the same bytes. */
export const answering =
  (bytes: Uint8Array): Behavior =>
  (stream) =>
    stream.addEventListener('message', () => void stream.send(bytes));
