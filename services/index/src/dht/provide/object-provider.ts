/**
 * Provides objects in the DHT: one lookup for each range of keys, and one stream with many ADD_PROVIDER for each peer.
 *
 * Contract: an object counts as stored if one of its closest peers stored it. Bound: `STREAMS_MAX` peers at a time; the
 * bucket paces objects. Cancellation: by the signal.
 */
import { sched, type TokenBucket } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { DhtDriver } from '../driver.ts';
import { positionOfKey, providerKey } from '../keys.ts';
import type { PeerRef } from '../peers.ts';
import { regionAround, type Region } from './region.ts';

const STREAMS_MAX = 4;
/** Peers come and go: a region is not used for longer. */
const REGION_MS = 600_000;

interface Batch {
  readonly peer: PeerRef;
  readonly keys: Uint8Array[];
}

export class ObjectProvider {
  readonly #dht: Pick<DhtDriver, 'findClosest' | 'addProvider'>;
  readonly #bucket: TokenBucket;
  #region: Region | undefined;
  #regionUntil_ms = 0;

  constructor(dht: Pick<DhtDriver, 'findClosest' | 'addProvider'>, bucket: TokenBucket) {
    this.#dht = dht;
    this.#bucket = bucket;
  }

  /** Objects in the order of their positions need the fewest lookups. Returns how many are stored at a peer. */
  async provide(addresses: readonly Address[], signal: AbortSignal): Promise<number> {
    const batches = new Map<string, Batch>();
    for (const address of addresses) {
      await this.#bucket.take(1, signal);
      const key = providerKey(address);
      for (const peer of await this.#closestTo(key, signal)) {
        const batch = batches.get(peer.id) ?? { peer, keys: [] };
        batches.set(peer.id, batch);
        batch.keys.push(key);
      }
    }
    return await this.#send([...batches.values()], signal);
  }

  async #closestTo(key: Uint8Array, signal: AbortSignal): Promise<PeerRef[]> {
    const position = positionOfKey(key);
    const isCurrent = sched.now_ms() < this.#regionUntil_ms && this.#region?.contains(position) === true;
    if (!isCurrent) {
      const { closest, seen } = await this.#dht.findClosest(key, signal);
      signal.throwIfAborted();
      this.#region = regionAround(position, closest, seen);
      this.#regionUntil_ms = sched.now_ms() + REGION_MS;
    }
    return this.#region!.closestTo(position);
  }

  async #send(batches: Batch[], signal: AbortSignal): Promise<number> {
    const stored = new Set<Uint8Array>();
    const sendNext = async (): Promise<void> => {
      for (let batch = batches.pop(); batch !== undefined; batch = batches.pop()) {
        signal.throwIfAborted();
        const { peer, keys } = batch;
        // A peer that fails is left out: each object lies at several peers.
        const isSent = await this.#dht.addProvider(peer, keys, signal).then(
          () => true,
          () => false,
        );
        if (isSent) for (const key of keys) stored.add(key);
      }
    };
    await Promise.all(Array.from({ length: STREAMS_MAX }, sendNext));
    // Without a peer that stores it, the next object begins with a new lookup.
    if (stored.size === 0) this.#regionUntil_ms = 0;
    return stored.size;
  }
}
