/**
 * `Peers` on libp2p. Loaded by a dynamic import, only in a node that joins a DHT: libp2p takes a second and 55 MiB.
 *
 * Contract: each request goes over a kept stream, or over a new one to a peer that is dialed by its known addresses. Failures:
 * `unreachable` (no connection, stream reset), `bad_gateway` (a malformed answer), `busy` (too many requests), the reason of the
 * signal. A peer that could not be dialed `DIAL_FAILURES_MAX` times in a row leaves the routing table until it connects again.
 * Bound: see `stream-pool.ts`, `message.ts`, `kad-server.ts` and `peer-rows.ts`.
 * Cancellation: by the signal of each call, at once. Disposal ends all requests and connections within `CLOSE_MS`.
 */
import type { Connection, PeerId, Stream } from '@libp2p/interface';
import { peerIdFromString } from '@libp2p/peer-id';
import { multiaddr } from '@multiformats/multiaddr';
import { LATE, orAborted, RonError, sched, withTimeout } from '@ron/kernel';
import { positionOfKey } from '../keys.ts';
import type { PeerAnswer, PeerRef, Peers, ProviderClaim } from '../peers.ts';
import { endpointOf } from './wire/addresses.ts';
import { KadAnswers } from './serve/kad-answers.ts';
import { boundNetwork } from './bound-network.ts';
import { DhtRecords, type DhtRecordsInit } from './serve/dht-records.ts';
import {
  ADDRS_MAX,
  decodeRecord,
  encodeMessage,
  encodeRecord,
  KAD,
  type KadMessage,
  type KadPeer,
} from './wire/message.ts';
import { createDhtNode, DIAL_MS, PROTOCOL, STREAMS_MAX, type DhtNode, type DhtNodeInit } from './node.ts';
import { addrsOfSelf, AnsweredPeer, peerIdText } from './peer-refs.ts';
import { PeerRows } from './peer-rows.ts';
import { ProviderUrls } from './provider-urls.ts';
import { dialableFrom, type IsDialable } from './reported-addresses.ts';
import { KadServer } from './serve/kad-server.ts';
import { StreamPool } from './wire/stream-pool.ts';

export interface Libp2pPeersInit
  extends
    Pick<DhtNodeInit, 'self' | 'seed' | 'network_key' | 'listen' | 'dial_ms' | 'storage_url'>,
    Pick<DhtRecordsInit, 'store' | 'names' | 'provides'> {
  /** Peer ids; empty: every holder of the network key. */
  readonly allow: readonly string[];
  /** Called for a failure to persist peers. */
  readonly warn: (error: unknown) => void;
}

interface Parts {
  readonly node: DhtNode;
  readonly rows: PeerRows;
  readonly records: DhtRecords;
  readonly urls: ProviderUrls;
  readonly server: KadServer;
}

const DIAL_FAILURES_MAX = 3;
const FAILURES_KEPT_MAX = 4096;
/** ADD_PROVIDER messages before the peer has to confirm them. */
const PROVIDE_BATCH = 64;
const CLOSE_MS = 1500;

export class Libp2pPeers implements Peers {
  readonly self: string;
  readonly node: DhtNode;
  readonly #parts: Parts;
  readonly #streams = new StreamPool();
  /** Failed dials in a row. */
  readonly #failures = new Map<string, number>();

  private constructor(self: string, parts: Parts) {
    this.self = self;
    this.node = parts.node;
    this.#parts = parts;
  }

  /** Listens. */
  static async open(init: Libp2pPeersInit): Promise<Libp2pPeers> {
    const peers = new Libp2pPeers(init.self, await openParts(init));
    try {
      await peers.#start();
      return peers;
    } catch (error) {
      await peers[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #start(): Promise<void> {
    boundNetwork(this.node);
    await this.node.start();
    // libp2p does it a second later; until then an answer would name this node without addresses.
    await this.node.peerStore.patch(this.node.peerId, { multiaddrs: this.node.getMultiaddrs() });
    const limits = { maxInboundStreams: STREAMS_MAX, maxOutboundStreams: STREAMS_MAX };
    await this.node.handle(PROTOCOL, this.#parts.server.onStream, limits);
  }

  get known(): number {
    return this.node.services.kad.routingTable.size;
  }

  get connected(): number {
    return this.node.getPeers().length;
  }

  get listening(): readonly string[] {
    return addrsOfSelf(this.node);
  }

  async closest(key: Uint8Array, count: number): Promise<PeerRef[]> {
    const ids = this.node.services.kad.routingTable.closestPeers(positionOfKey(key), { count });
    return ids.map((id) => ({ id: id.toString(), addrs: [] })).filter(({ id }) => id !== this.self);
  }

  async getProviders(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer> {
    return await this.#answer(peer, await this.#request(peer, { type: KAD.GET_PROVIDERS, key }, signal), key, signal);
  }

  async getValue(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer> {
    return await this.#answer(peer, await this.#request(peer, { type: KAD.GET_VALUE, key }, signal), key, signal);
  }

  async putValue(peer: PeerRef, key: Uint8Array, value: Uint8Array, signal: AbortSignal): Promise<void> {
    const record = encodeRecord({ key, value, received: new Date(sched.wall_ms()).toISOString() });
    await this.#request(peer, { type: KAD.PUT_VALUE, key, record }, signal);
  }

  async findNode(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerRef[]> {
    const answer = await this.#request(peer, { type: KAD.FIND_NODE, key }, signal);
    return this.#refs(answer.closer, this.#dialableFrom(peer));
  }

  /** ADD_PROVIDER has no answer: a PING behind each batch proves that the peer has handled it. */
  async addProvider(peer: PeerRef, keys: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    if (peer.id === this.self) return;
    const self = {
      id: this.node.peerId.toMultihash().bytes,
      addrs: this.node.getMultiaddrs().map(({ bytes }) => bytes),
    };
    const pong = encodeMessage({ type: KAD.PING });
    for (let at = 0; at < keys.length; at += PROVIDE_BATCH) {
      const batch = keys.slice(at, at + PROVIDE_BATCH);
      const frames = batch.map((key) => encodeMessage({ type: KAD.ADD_PROVIDER, key, providers: [self] }));
      await this.#exchange(peer, Buffer.concat([...frames, pong]), signal);
    }
  }

  async #request(
    peer: PeerRef,
    message: Partial<KadMessage> & Pick<KadMessage, 'type'>,
    signal: AbortSignal,
  ): Promise<KadMessage> {
    if (peer.id === this.self) return await this.#requestSelf(message, signal);
    return await this.#exchange(peer, encodeMessage(message), signal);
  }

  async #requestSelf(
    message: Partial<KadMessage> & Pick<KadMessage, 'type'>,
    signal: AbortSignal,
  ): Promise<KadMessage> {
    const request = { key: undefined, record: undefined, closer: [], providers: [], ...message };
    const answer = await orAborted(this.#parts.server.answer(this.node.peerId, request), signal);
    return answer ?? request;
  }

  #exchange(peer: PeerRef, bytes: Uint8Array, signal: AbortSignal): Promise<KadMessage> {
    return this.#streams.exchange(peer.id, bytes, signal, () => this.#open(peer, signal));
  }

  async #open(peer: PeerRef, signal: AbortSignal): Promise<Stream> {
    try {
      const id = peerIdFromString(peer.id);
      const connection =
        this.node.getConnections(id).find(({ status }) => status === 'open') ??
        (await orAborted(this.#dial(id, peer.addrs, signal), signal));
      this.#failures.delete(peer.id);
      return await orAborted(connection.newStream(PROTOCOL, { signal }), signal);
    } catch (error) {
      signal.throwIfAborted();
      this.#noteFailure(peer.id);
      throw new RonError('unreachable', 'the peer cannot be reached', { cause: error });
    }
  }

  /** Dials the known addresses first: those of an answer are the claim of another peer. */
  async #dial(id: PeerId, addrs: readonly string[], signal: AbortSignal): Promise<Connection> {
    if (addrs.length === 0) return await this.node.dial(id, { signal });
    const known =
      this.#parts.rows.byId(id.toString()) === undefined ? [] : (await this.node.peerStore.get(id)).addresses;
    const dialable = known.filter(({ multiaddr: { bytes } }) => endpointOf(bytes)?.kind === 'p2p');
    const targets = new Set([...dialable.map(({ multiaddr: addr }) => addr.toString()), ...addrs].map(withoutPeer));
    const limited = [...targets].slice(0, ADDRS_MAX).map((addr) => multiaddr(`${addr}/p2p/${id.toString()}`));
    return await this.node.dial(limited, { signal });
  }

  #noteFailure(peer: string): void {
    const count = (this.#failures.get(peer) ?? 0) + 1;
    this.#failures.delete(peer);
    this.#failures.set(peer, count);
    if (this.#failures.size > FAILURES_KEPT_MAX) this.#failures.delete(this.#failures.keys().next().value!);
    if (count < DIAL_FAILURES_MAX) return;
    this.#failures.delete(peer);
    this.node.services.kad.routingTable.remove(peerIdFromString(peer)).catch(() => undefined);
  }

  async #answer(peer: PeerRef, message: KadMessage, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer> {
    const isDialable = this.#dialableFrom(peer);
    const value = valueOf(message, key);
    const providers = await this.#claims(message.providers, isDialable, signal);
    return { providers, value, closer: this.#refs(message.closer, isDialable) };
  }

  /** The records of this node come from any of its peers. */
  #dialableFrom({ id }: PeerRef): IsDialable {
    const reporter = id === this.self ? undefined : peerIdFromString(id);
    return dialableFrom(() => this.node.getConnections(reporter));
  }

  async #claims(peers: readonly KadPeer[], isDialable: IsDialable, signal: AbortSignal): Promise<ProviderClaim[]> {
    const ofAnswer = this.#parts.urls.forAnswer(isDialable);
    const claims = peers.map(async ({ id: bytes, addrs }): Promise<ProviderClaim | undefined> => {
      const id = peerIdText(bytes);
      if (id === undefined || id === this.self) return undefined;
      return { id, url: await ofAnswer.find(id, addrs, signal) };
    });
    return (await Promise.all(claims)).filter((claim) => claim !== undefined);
  }

  #refs(peers: readonly KadPeer[], isDialable: IsDialable): PeerRef[] {
    const refs = peers.map((peer) => AnsweredPeer.of(peer, isDialable)).filter((ref) => ref !== undefined);
    return refs.filter(({ id }) => id !== this.self);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#streams[Symbol.dispose]();
    const stopped = (async () => await this.node.stop())();
    if ((await withTimeout(stopped, CLOSE_MS)) === LATE)
      for (const connection of this.node.getConnections())
        connection.abort(new RonError('closed', 'the DHT is closed'));
    await this.#parts.records[Symbol.asyncDispose]();
    await this.#parts.rows[Symbol.asyncDispose]();
  }
}

async function openParts(init: Libp2pPeersInit): Promise<Parts> {
  const allowed = new Set(init.allow);
  const isAllowed = (peer: string): boolean => allowed.size === 0 || allowed.has(peer);
  const rows = await PeerRows.open(init.store, init.warn);
  let urls: ProviderUrls | undefined;
  const isOwnIp = (peer: string, ip: string): boolean => urls!.isOwnIp(peer, ip);
  const node = await createDhtNode({ ...init, isAllowed, rows, isOwnIp });
  // Half of it: the lookup that waits for the URL has a budget of its own.
  urls = new ProviderUrls(node, (init.dial_ms ?? DIAL_MS) / 2);
  const provides = init.storage_url === undefined ? async () => false : init.provides;
  const records = new DhtRecords({ ...init, provides });
  const server = new KadServer(new KadAnswers({ node, rows, records, isAllowed }));
  return { node, rows, records, urls, server };
}

const withoutPeer = (addr: string): string => addr.replace(/\/p2p\/[^/]+$/, '');

function valueOf({ record }: KadMessage, key: Uint8Array): Uint8Array | undefined {
  if (record === undefined) return undefined;
  const decoded = decodeRecord(record);
  if (Buffer.compare(decoded.key, key) !== 0) throw new RonError('bad_gateway', 'the record has another key');
  return decoded.value;
}
