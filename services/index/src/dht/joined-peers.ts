/**
 * The peers of a node that joins a DHT. libp2p is loaded and opened by the task `dht`, after the service listens; until then no
 * peer is known.
 *
 * Contract: `run` is the body of the task: it opens the network, then keeps this node in it, and ends when the service stops. The
 * network stays open for the requests that drain, until disposal. If opening fails, `problem` says why and the task fails.
 */
import { RonError } from '@ron/kernel';
import type { NodeKey } from '../node-key.ts';
import type { Names } from '../publish/names.ts';
import type { IndexStore } from '../store/index-store.ts';
import { positionOfKey } from './keys.ts';
import type { Libp2pPeers } from './libp2p/libp2p-peers.ts';
import type { Membership } from './libp2p/membership.ts';
import type { PeerAnswer, PeerRef, Peers } from './peers.ts';

export interface JoinedPeersInit {
  readonly key: NodeKey;
  readonly network_key_file: string;
  readonly listen: string;
  readonly bootstrap: readonly string[];
  readonly allow: readonly string[];
  /** Announced to other nodes; undefined: this node provides nothing. */
  readonly storage_url: string | undefined;
  readonly store: Pick<IndexStore, 'dhtGet' | 'dhtPut' | 'dhtDelete' | 'dhtQuery' | 'objects'>;
  readonly names: Pick<Names, 'accepts'>;
  readonly warn: (error: unknown) => void;
}

export class JoinedPeers implements Peers {
  readonly self: string;
  readonly #init: JoinedPeersInit;
  #peers: Libp2pPeers | undefined;
  #membership: Membership | undefined;
  #failure: string | undefined;
  #isClosed = false;

  constructor(init: JoinedPeersInit) {
    this.#init = init;
    this.self = init.key.peer_id;
  }

  /** Why no request can leave this node; the readiness gate `dht`. */
  get problem(): string | undefined {
    return this.#failure ?? (this.#membership === undefined ? 'the DHT is starting' : this.#membership.problem);
  }

  get known(): number {
    return this.#peers?.known ?? 0;
  }

  get listening(): readonly string[] {
    return this.#peers?.listening ?? [];
  }

  async run(stopping: AbortSignal): Promise<void> {
    try {
      this.#failure = undefined;
      await this.#open();
    } catch (error) {
      this.#failure = `the DHT cannot start: ${error instanceof Error ? error.message : 'unknown error'}`;
      throw error;
    }
    await this.#membership!.run(stopping);
  }

  async #open(): Promise<void> {
    if (this.#peers !== undefined) return;
    const { key, store, bootstrap, network_key_file, ...rest } = this.#init;
    const { Libp2pPeers: Adapter, Membership: Task, readNetworkKey } = await import('./libp2p/index.ts');
    const network_key = await readNetworkKey(network_key_file);
    const isProvider = rest.storage_url !== undefined;
    const provides = async (wanted: Uint8Array): Promise<boolean> => isProvider && (await hasObject(store, wanted));
    const seed = key.exportSeed();
    const peers = await Adapter.open({ ...rest, store, provides, self: key.peer_id, seed, network_key });
    if (this.#isClosed) return await peers[Symbol.asyncDispose]();
    this.#peers = peers;
    this.#membership = new Task(peers, bootstrap, rest.warn);
  }

  async closest(key: Uint8Array, count: number): Promise<PeerRef[]> {
    return (await this.#peers?.closest(key, count)) ?? [];
  }

  async getProviders(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer> {
    return await this.#opened().getProviders(peer, key, signal);
  }

  async getValue(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer> {
    return await this.#opened().getValue(peer, key, signal);
  }

  async putValue(peer: PeerRef, key: Uint8Array, value: Uint8Array, signal: AbortSignal): Promise<void> {
    await this.#opened().putValue(peer, key, value, signal);
  }

  async addProvider(peer: PeerRef, keys: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    await this.#opened().addProvider(peer, keys, signal);
  }

  async findNode(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerRef[]> {
    return await this.#opened().findNode(peer, key, signal);
  }

  #opened(): Libp2pPeers {
    if (this.#peers === undefined) throw new RonError('no_route', 'the DHT is starting');
    return this.#peers;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    await this.#peers?.[Symbol.asyncDispose]();
  }
}

/** Whether an own object has this key: own objects are ordered by the position of their key. */
async function hasObject(store: Pick<IndexStore, 'objects'>, key: Uint8Array): Promise<boolean> {
  const position = positionOfKey(key);
  const [next] = await store.objects(before(position), 1);
  return next !== undefined && Buffer.compare(next.routing_key, position) === 0;
}

/** The position directly before; undefined for the first one. */
function before(position: Uint8Array): Uint8Array | undefined {
  const bytes = Uint8Array.from(position);
  for (let at = bytes.length - 1; at >= 0; at--) {
    if (bytes[at]!-- > 0) return bytes;
  }
  return undefined;
}
