/**
 * The peer store of libp2p in memory, persisted behind it.
 *
 * Contract: reads and writes are synchronous. Changes are written to the store within `FLUSH_MS` and at disposal; a crash loses
 * later ones, which a peer repeats when it connects.
 * Bound: `PEERS_MAX` peers; beyond that the one written longest ago is dropped. A start reads no peer that was written more than
 * `PEER_AGE_MS` ago; a peer in memory does not expire, because it may be connected.
 * Failure: rows that the store refuses stay in memory, and are written again with the next change.
 */
import { peerIdFromString } from '@libp2p/peer-id';
import { sched, type Timer } from '@ron/kernel';
import type { IndexStore } from '../../store/index-store.ts';

export const PEER_PREFIX = '/peers/';
/** Above the validity of provider records: a record without the addresses of its peer is useless. */
const PEER_AGE_MS = 72 * 3_600_000;
const PEERS_MAX = 4096;
const FLUSH_MS = 250;

export type PeerRowStore = Pick<IndexStore, 'dhtPut' | 'dhtDelete' | 'dhtQuery'>;

interface PeerRow {
  readonly value: Uint8Array;
  isDirty: boolean;
}

export class PeerRows implements AsyncDisposable {
  readonly #store: PeerRowStore;
  readonly #warn: (error: unknown) => void;
  /** In the order of their last write. */
  readonly #rows = new Map<string, PeerRow>();
  /** Keys to remove from the store. */
  readonly #removed = new Set<string>();
  /** Keys of rows by peer id. Emptied when it is full. */
  readonly #keys = new Map<string, string>();
  #timer: Timer | undefined;
  #flush: Promise<void> = Promise.resolve();
  #isClosed = false;

  private constructor(store: PeerRowStore, warn: (error: unknown) => void) {
    this.#store = store;
    this.#warn = warn;
  }

  static async open(store: PeerRowStore, warn: (error: unknown) => void): Promise<PeerRows> {
    const peers = new PeerRows(store, warn);
    const rows = await store.dhtQuery(PEER_PREFIX, { now_ms: sched.wall_ms(), limit: PEERS_MAX });
    for (const { key, value } of rows) peers.#rows.set(key, { value, isDirty: false });
    return peers;
  }

  get(key: string): Uint8Array | undefined {
    return this.#rows.get(key)?.value;
  }

  /** The stored form of a peer, which contains the bytes of its addresses. */
  byId(id: string): Uint8Array | undefined {
    return this.get(this.#keyOf(id));
  }

  entries(): { key: string; value: Uint8Array }[] {
    return Array.from(this.#rows, ([key, { value }]) => ({ key, value }));
  }

  put(key: string, value: Uint8Array): void {
    this.#rows.delete(key);
    this.#rows.set(key, { value, isDirty: true });
    this.#removed.delete(key);
    if (this.#rows.size > PEERS_MAX) this.drop(this.#rows.keys().next().value!);
    this.#schedule();
  }

  drop(key: string): void {
    if (!this.#rows.delete(key)) return;
    // Beyond the bound the row stays until it expires.
    if (this.#removed.size < PEERS_MAX) this.#removed.add(key);
    this.#schedule();
  }

  /** As the peer store of libp2p forms it. */
  #keyOf(id: string): string {
    const known = this.#keys.get(id);
    if (known !== undefined) return known;
    const key = `${PEER_PREFIX}${peerIdFromString(id).toCID().toString()}`;
    if (this.#keys.size >= PEERS_MAX) this.#keys.clear();
    this.#keys.set(id, key);
    return key;
  }

  #schedule(): void {
    // libp2p still notes disconnected peers while it stops.
    if (this.#isClosed) return;
    this.#timer ??= sched.timer(
      FLUSH_MS,
      () => {
        this.#flush = this.#write().catch(this.#warn);
      },
      'dht_peers',
    );
  }

  async #write(): Promise<void> {
    await this.#flush;
    this.#timer = undefined;
    const now_ms = sched.wall_ms();
    for (const key of Array.from(this.#removed)) {
      await this.#store.dhtDelete(key);
      this.#removed.delete(key);
    }
    for (const [key, row] of Array.from(this.#rows)) {
      if (!row.isDirty) continue;
      await this.#store.dhtPut(key, row.value, { subject: key, expires_ms: now_ms + PEER_AGE_MS, now_ms });
      row.isDirty = false;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    this.#timer?.cancel();
    await this.#write().catch(this.#warn);
  }
}
