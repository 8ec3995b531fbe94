/**
 * The answers to requests of other peers, by the rules of kad-dht. Its own handlers read each closer peer from the peer store,
 * which takes 80 us, and keep every address of a provider.
 *
 * Contract: a provider record is accepted only from the provider itself. Providers without known addresses, and peers that are
 * not allowed any more, are not listed. A refused request rejects; the caller resets its stream.
 * Bound: 20 closer peers, `PROVIDERS_MAX` providers.
 */
import type { PeerId } from '@libp2p/interface';
import { peerIdFromString } from '@libp2p/peer-id';
import { multiaddr } from '@multiformats/multiaddr';
import { RonError } from '@ron/kernel';
import { positionOfKey } from '../../keys.ts';
import { endpointOf } from '../wire/addresses.ts';
import type { DhtRecords } from './dht-records.ts';
import { CLOSER_MAX } from '../../peers.ts';
import { decodeRecord, encodedPeer, KAD, type KadMessage, type KadPeer } from '../wire/message.ts';
import type { DhtNode } from '../node.ts';
import { peerIdText } from '../peer-refs.ts';
import type { PeerRows } from '../peer-rows.ts';

export interface KadAnswersInit {
  readonly node: DhtNode;
  readonly rows: PeerRows;
  readonly records: DhtRecords;
  readonly isAllowed: (peer: string) => boolean;
}

export class KadAnswers {
  readonly #init: KadAnswersInit;
  /** By the stored form of the peer, which is replaced with each change. */
  readonly #encoded = new WeakMap<Uint8Array, KadPeer>();

  constructor(init: KadAnswersInit) {
    this.#init = init;
  }

  /** Undefined if the request has no answer. */
  async answer(from: PeerId, request: KadMessage): Promise<KadMessage | undefined> {
    if (request.type === KAD.PING) return request;
    const { type, key } = request;
    if (key === undefined || key.length === 0) throw new RonError('bad_request', 'a DHT request without a key');
    const base = { type, key, record: undefined, closer: [], providers: [] };
    if (type === KAD.GET_PROVIDERS) {
      const [providers, closer] = await Promise.all([this.#providers(key), this.#closer(key, from)]);
      return { ...base, providers, closer };
    }
    if (type === KAD.GET_VALUE) {
      const [record, closer] = await Promise.all([this.#init.records.getRecord(key), this.#closer(key, from)]);
      return { ...base, record, closer };
    }
    if (type === KAD.FIND_NODE) return { ...base, key: undefined, closer: await this.#find(key, from) };
    if (type === KAD.PUT_VALUE) return await this.#put(from, key, request);
    return await this.#addProvider(from, key, request.providers);
  }

  async #providers(key: Uint8Array): Promise<KadPeer[]> {
    const { records, isAllowed, node } = this.#init;
    const self = node.peerId.toString();
    const ids = (await records.providersOf(key)).filter((id) => id === self || isAllowed(id));
    return await this.#known(ids);
  }

  /** Without the peer that asks. */
  async #closer(key: Uint8Array, from: PeerId): Promise<KadPeer[]> {
    const { routingTable } = this.#init.node.services.kad;
    const ids = routingTable.closestPeers(positionOfKey(key), { count: CLOSER_MAX, exclude: [from] });
    return await this.#known(ids.map((id) => id.toString()));
  }

  /** The peer itself if it is known, even if it is not in the table. */
  async #find(key: Uint8Array, from: PeerId): Promise<KadPeer[]> {
    const id = peerIdText(key);
    const found = id === undefined ? undefined : await this.#peer(id);
    const closer = (await this.#closer(key, from)).filter((peer) => Buffer.compare(peer.id, key) !== 0);
    return found === undefined ? closer : [found, ...closer].slice(0, CLOSER_MAX);
  }

  async #known(ids: readonly string[]): Promise<KadPeer[]> {
    const peers = await Promise.all(ids.map((id) => this.#peer(id)));
    return peers.filter((peer) => peer !== undefined && peer.addrs.length > 0) as KadPeer[];
  }

  async #peer(id: string): Promise<KadPeer | undefined> {
    const row = this.#init.rows.byId(id);
    if (row === undefined) return undefined;
    const known = this.#encoded.get(row);
    if (known !== undefined) return known;
    const { addresses } = await this.#init.node.peerStore.get(peerIdFromString(id));
    const addrs = addresses.map((address) => address.multiaddr.bytes);
    const peer = encodedPeer({ id: peerIdFromString(id).toMultihash().bytes, addrs });
    if (addrs.length > 0) this.#encoded.set(row, peer);
    return peer;
  }

  async #put(from: PeerId, key: Uint8Array, request: KadMessage): Promise<KadMessage> {
    if (request.record === undefined) throw new RonError('bad_request', 'a DHT request without a record');
    const record = decodeRecord(request.record);
    if (Buffer.compare(record.key, key) !== 0) throw new RonError('bad_request', 'the record has another key');
    await this.#init.records.putRecord(key, record.value, from.toString());
    return request;
  }

  async #addProvider(from: PeerId, key: Uint8Array, providers: readonly KadPeer[]): Promise<undefined> {
    const own = providers.find(({ id }) => Buffer.compare(id, from.toMultihash().bytes) === 0);
    const addrs = own?.addrs.filter((addr) => endpointOf(addr) !== undefined) ?? [];
    if (addrs.length === 0) return undefined;
    await this.#init.records.addProvider(key, from.toString());
    const row = this.#init.rows.byId(from.toString());
    const isKnown = row !== undefined && addrs.every((addr) => includes(row, addr));
    if (!isKnown) await this.#init.node.peerStore.merge(from, { multiaddrs: addrs.map((addr) => multiaddr(addr)) });
    return undefined;
  }
}

/** Whether the stored form of a peer contains the address. */
export function includes(row: Uint8Array, addr: Uint8Array): boolean {
  return Buffer.from(row.buffer, row.byteOffset, row.length).includes(addr);
}
