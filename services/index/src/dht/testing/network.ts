/**
 * A DHT in memory: nodes with routing tables and records, and requests that take time and fail as the test says.
 * All time and chance come from `sched`, so that a test can use a virtual clock. Faults belong to the queried node.
 */
import { hash } from 'node:crypto';
import { RonError, sched, sleep, untilAborted } from '@ron/kernel';
import { base58btc } from 'multiformats/bases/base58';
import { commonPrefixBits, compareDistance, positionOfKey, positionOfPeer } from '../keys.ts';
import type { PeerAnswer, PeerRef, Peers, ProviderClaim } from '../peers.ts';

const BUCKET = 20;

/** How a node answers. Default: as specified, after the latency of the network. */
export type Behavior =
  | 'normal'
  | 'silent' // Never answers.
  | 'gone' // Refuses connections.
  | 'garbage'
  | 'claims_all' // Names itself as the provider of every key.
  | 'floods'; // Sends 10 000 closer peers.

/** The peer id of an Ed25519 key that is the hash of `name`. */
export function peerIdOf(name: string): string {
  const key = hash('sha256', name, 'buffer');
  return base58btc.baseEncode(Buffer.concat([Buffer.from('002408011220', 'hex'), key]));
}

/** A storage URL that differs between peers. */
export const urlOf = (id: string): string =>
  `http://127.0.0.1:${(1024 + hash('sha256', id, 'buffer').readUInt16BE() / 2) | 0}`;

const FLOOD: readonly PeerRef[] = Array.from({ length: 10_000 }, (_, at) => ({
  id: peerIdOf(`flood ${at}`),
  addrs: [],
}));

export interface MemoryNetworkInit {
  /** Of one request, there and back. Default 20. */
  readonly latency_ms?: () => number;
}

export interface Sent {
  readonly from: string;
  readonly to: string;
  readonly op: 'getProviders' | 'getValue' | 'putValue' | 'addProvider' | 'findNode';
  readonly at_ms: number;
  outcome: 'running' | 'answered' | 'failed' | 'canceled';
}

export class MemoryNetwork {
  readonly nodes = new Map<string, MemoryNode>();
  /** Every request since the last reset. */
  sent: Sent[] = [];
  readonly latency_ms: () => number;

  constructor(init: MemoryNetworkInit = {}) {
    this.latency_ms = init.latency_ms ?? (() => 20);
  }

  add(name: string): MemoryNode {
    const node = new MemoryNode(this, peerIdOf(name));
    this.nodes.set(node.self, node);
    return node;
  }

  /** Adds `count` nodes and fills their routing tables. */
  grow(count: number): MemoryNode[] {
    const added = Array.from({ length: count }, () => this.add(`node ${this.nodes.size}`));
    this.fillTables();
    return added;
  }

  /** Gives each node the bucket contents that a node of a settled network has. */
  fillTables(): void {
    const nodes = [...this.nodes.values()];
    // Each node begins elsewhere, so that full buckets differ.
    for (const [at, node] of nodes.entries()) {
      for (const other of [...nodes.slice(at), ...nodes.slice(0, at)]) node.meet(other);
    }
  }

  /** The nodes closest to `key`, the closest first. */
  closestTo(key: Uint8Array, count: number): MemoryNode[] {
    const target = positionOfKey(key);
    const nodes = [...this.nodes.values()];
    return nodes.toSorted((a, b) => compareDistance(target, a.position, b.position)).slice(0, count);
  }

  /** Stores the claim at the 20 closest nodes, as a sweep of the provider does. */
  provide(key: Uint8Array, claim: ProviderClaim): void {
    for (const node of this.closestTo(key, BUCKET)) node.store(key, claim);
  }
}

export class MemoryNode implements Peers {
  readonly self: string;
  readonly position: Uint8Array;
  readonly listening = [];
  behavior: Behavior = 'normal';
  /** Added to the latency of each request. */
  delay_ms = 0;
  #stalls = { count: 0, delay_ms: 0 };
  readonly #network: MemoryNetwork;
  readonly #buckets = new Map<number, MemoryNode[]>();
  readonly #providers = new Map<string, Map<string, ProviderClaim>>();
  readonly #values = new Map<string, Uint8Array>();

  constructor(network: MemoryNetwork, self: string) {
    this.self = self;
    this.position = positionOfPeer(self)!;
    this.#network = network;
  }

  get known(): number {
    let count = 0;
    for (const bucket of this.#buckets.values()) count += bucket.length;
    return count;
  }

  /** Adds a peer to its bucket if there is room. */
  meet(other: MemoryNode): void {
    if (other === this) return;
    const at = commonPrefixBits(this.position, other.position);
    const bucket = this.#buckets.get(at) ?? [];
    this.#buckets.set(at, bucket);
    if (bucket.length < BUCKET && !bucket.includes(other)) bucket.push(other);
  }

  /** The next `count` requests of this node take `delay_ms` longer. */
  stallNext(count: number, delay_ms: number): void {
    this.#stalls = { count, delay_ms };
  }

  store(key: Uint8Array, claim: ProviderClaim): void {
    const text = Buffer.from(key).toString('hex');
    const claims = this.#providers.get(text) ?? new Map<string, ProviderClaim>();
    this.#providers.set(text, claims.set(claim.id, claim));
  }

  providersOf(key: Uint8Array): ProviderClaim[] {
    return [...(this.#providers.get(Buffer.from(key).toString('hex'))?.values() ?? [])];
  }

  dropProviders(key: Uint8Array): void {
    this.#providers.delete(Buffer.from(key).toString('hex'));
  }

  dropValues(): void {
    this.#values.clear();
  }

  storeValue(key: Uint8Array, value: Uint8Array): void {
    this.#values.set(Buffer.from(key).toString('hex'), value);
  }

  valueOf(key: Uint8Array): Uint8Array | undefined {
    return this.#values.get(Buffer.from(key).toString('hex'));
  }

  closestNow(key: Uint8Array, count: number): PeerRef[] {
    const target = positionOfKey(key);
    const known = [...this.#buckets.values()].flat();
    const closest = known.toSorted((a, b) => compareDistance(target, a.position, b.position)).slice(0, count);
    return closest.map(({ self }) => ({ id: self, addrs: [] }));
  }

  closest(key: Uint8Array, count: number): Promise<PeerRef[]> {
    return Promise.resolve(this.closestNow(key, count));
  }

  getProviders(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer> {
    return this.#request('getProviders', peer, signal, (node) => ({
      providers: node.behavior === 'claims_all' ? [{ id: node.self, url: urlOf(node.self) }] : node.providersOf(key),
      value: undefined,
      closer: node.closerTo(key, peer.id === this.self),
    }));
  }

  getValue(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerAnswer> {
    return this.#request('getValue', peer, signal, (node) => ({
      providers: [],
      value: node.valueOf(key),
      closer: node.closerTo(key, peer.id === this.self),
    }));
  }

  putValue(peer: PeerRef, key: Uint8Array, value: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.#request('putValue', peer, signal, (node) => node.storeValue(key, value));
  }

  addProvider(peer: PeerRef, keys: readonly Uint8Array[], signal: AbortSignal): Promise<void> {
    return this.#request('addProvider', peer, signal, (node) => {
      for (const key of keys) node.store(key, { id: this.self, url: urlOf(this.self) });
    });
  }

  findNode(peer: PeerRef, key: Uint8Array, signal: AbortSignal): Promise<PeerRef[]> {
    return this.#request('findNode', peer, signal, (node) => [...node.closerTo(key, false)]);
  }

  closerTo(key: Uint8Array, isOwn: boolean): readonly PeerRef[] {
    if (isOwn) return [];
    return this.behavior === 'floods' ? FLOOD : this.closestNow(key, BUCKET);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }

  async #request<T>(op: Sent['op'], peer: PeerRef, signal: AbortSignal, answer: (node: MemoryNode) => T): Promise<T> {
    if (peer.id === this.self) return answer(this);
    const sent: Sent = { from: this.self, to: peer.id, op, at_ms: sched.now_ms(), outcome: 'running' };
    this.#network.sent.push(sent);
    try {
      const value = answer(await this.#reach(peer, signal));
      sent.outcome = 'answered';
      return value;
    } catch (error) {
      sent.outcome = signal.aborted ? 'canceled' : 'failed';
      throw error;
    }
  }

  /** The queried node, once the request would have been answered. */
  async #reach(peer: PeerRef, signal: AbortSignal): Promise<MemoryNode> {
    const node = this.#network.nodes.get(peer.id);
    if (node === undefined || node.behavior === 'gone') {
      await sleep(1, signal);
      throw new RonError('unreachable', 'the peer refuses connections');
    }
    if (node.behavior === 'silent') {
      await untilAborted(signal);
      throw signal.reason;
    }
    const stall_ms = this.#stalls.count-- > 0 ? this.#stalls.delay_ms : 0;
    await sleep(this.#network.latency_ms() + node.delay_ms + stall_ms, signal);
    if (node.behavior === 'garbage') throw new RonError('bad_gateway', 'the answer is malformed');
    // A reference: the node may have gone meanwhile.
    if ((node.behavior as Behavior) === 'gone') throw new RonError('unreachable', 'the peer broke off the connection');
    node.meet(this);
    return node;
  }
}
