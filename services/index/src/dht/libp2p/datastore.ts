/**
 * The datastore below libp2p: provider records, name records and the peer store.
 *
 * Contract: provider records live 48 hours, name records until their `not_after`, at most 48 hours; expired entries are not
 * returned. The quotas of the store refuse further entries with `storage_full`. A name record is replaced only by one that
 * supersedes it, even if two arrive at once. Providers whose addresses are unknown are not listed.
 * Bound: peers are kept in memory, `PEERS_MAX` of them; the one written longest ago is dropped. `PROVIDERS_MAX` providers of a key are
 * read. Changes of peers are written to the store within `FLUSH_MS` and at disposal; a crash loses later ones, which a peer
 * repeats when it connects.
 * Cancellation: the calls of the store have their own deadline.
 */
import { NotFoundError } from '@libp2p/interface';
import { peerIdFromString } from '@libp2p/peer-id';
import { KeyedMutex, NEVER, RonError, sched, type Timer } from '@ron/kernel';
import { Key, type Batch, type Datastore, type KeyQuery, type Pair, type Query } from 'interface-datastore';
import { base32 } from 'multiformats/bases/base32';
import type { IndexStore } from '../../store/index-store.ts';
import { supersedes } from '../../store/record-order.ts';
import { decodeRecord, PROVIDERS_MAX } from './message.ts';
import { orderOfNameValue } from './name-records.ts';

export type DhtStore = Pick<IndexStore, 'dhtGet' | 'dhtPut' | 'dhtDelete' | 'dhtQuery'>;

export interface IndexDatastoreInit {
  readonly store: DhtStore;
  readonly self: string;
  /** Whether this node provides the key (a multihash) itself. */
  readonly provides: (key: Uint8Array) => Promise<boolean>;
  readonly isAllowed: (peer: string) => boolean;
  /** Called for a failure to persist peers. */
  readonly warn: (error: unknown) => void;
}

const PROVIDER_PREFIX = '/dht/provider/';
const RECORD_PREFIX = '/dht/record/';
const PEER_PREFIX = '/peers/';
const VALID_MS = 48 * 3_600_000;
/** Above the validity of provider records: a record without the addresses of its peer is useless. */
export const PEER_AGE_MS = 72 * 3_600_000;
const PEERS_MAX = 4096;
const FLUSH_MS = 250;

interface PeerRow {
  readonly value: Uint8Array;
  isDirty: boolean;
}

export class IndexDatastore implements Datastore, AsyncDisposable {
  readonly #init: IndexDatastoreInit;
  /** In the order of their last write. */
  readonly #peers = new Map<string, PeerRow>();
  /** Names whose record is being replaced. */
  readonly #records = new KeyedMutex('dht_records', { keys_max: 1024, waiters_max: 64 });
  /** Keys of peers to remove from the store. */
  readonly #removed = new Set<string>();
  #timer: Timer | undefined;
  #flush: Promise<void> = Promise.resolve();
  #isClosed = false;

  private constructor(init: IndexDatastoreInit) {
    this.#init = init;
  }

  static async open(init: IndexDatastoreInit): Promise<IndexDatastore> {
    const datastore = new IndexDatastore(init);
    const rows = await init.store.dhtQuery(PEER_PREFIX, { now_ms: sched.wall_ms(), limit: PEERS_MAX });
    for (const { key, value } of rows) datastore.#peers.set(key, { value, isDirty: false });
    return datastore;
  }

  /** The stored form of a peer, which contains the bytes of its addresses. */
  peerRow(id: string): Uint8Array | undefined {
    return this.#peers.get(peerKey(id))?.value;
  }

  async get(key: Key): Promise<Uint8Array> {
    const text = key.toString();
    const value = text.startsWith(PEER_PREFIX)
      ? this.#peers.get(text)?.value
      : await this.#init.store.dhtGet(text, sched.wall_ms());
    if (value === undefined) throw new NotFoundError('no entry of the DHT has this key');
    return value;
  }

  async has(key: Key): Promise<boolean> {
    const text = key.toString();
    if (text.startsWith(PEER_PREFIX)) return this.#peers.has(text);
    return (await this.#init.store.dhtGet(text, sched.wall_ms())) !== undefined;
  }

  async put(key: Key, value: Uint8Array): Promise<Key> {
    const text = key.toString();
    if (text.startsWith(PEER_PREFIX)) this.#putPeer(text, value);
    else if (text.startsWith(PROVIDER_PREFIX)) await this.#putProvider(text, value);
    else if (text.startsWith(RECORD_PREFIX)) await this.#putRecord(text, value);
    else throw new RonError('internal', 'libp2p stores only peers, providers and records');
    return key;
  }

  async delete(key: Key): Promise<void> {
    const text = key.toString();
    if (text.startsWith(PEER_PREFIX)) this.#dropPeer(text);
    else await this.#init.store.dhtDelete(text);
  }

  async *query({ prefix = '', filters = [], orders = [], offset = 0, limit }: Query): AsyncGenerator<Pair> {
    let pairs = (await this.#select(prefix)).filter((pair) => filters.every((accepts) => accepts(pair)));
    for (const order of orders) pairs.sort(order);
    pairs = pairs.slice(offset, limit === undefined ? undefined : offset + limit);
    yield* pairs;
  }

  async *queryKeys(query: KeyQuery): AsyncGenerator<Key> {
    const filters = (query.filters ?? []).map((accepts) => (pair: Pair) => accepts(pair.key));
    const { filters: _, orders: __, ...rest } = query;
    for await (const { key } of this.query({ ...rest, filters })) yield key;
  }

  async *putMany(source: Iterable<Pair> | AsyncIterable<Pair>): AsyncGenerator<Key> {
    for await (const { key, value } of source) yield await this.put(key, value);
  }

  async *getMany(source: Iterable<Key> | AsyncIterable<Key>): AsyncGenerator<Pair> {
    for await (const key of source) yield { key, value: await this.get(key) };
  }

  async *deleteMany(source: Iterable<Key> | AsyncIterable<Key>): AsyncGenerator<Key> {
    for await (const key of source) {
      await this.delete(key);
      yield key;
    }
  }

  batch(): Batch {
    const steps: (() => Promise<unknown>)[] = [];
    return {
      put: (key, value) => void steps.push(() => this.put(key, value)),
      delete: (key) => void steps.push(() => this.delete(key)),
      commit: async () => {
        for (const step of steps.splice(0)) await step();
      },
    };
  }

  async #select(prefix: string): Promise<Pair[]> {
    if (prefix.startsWith(PEER_PREFIX) || `${prefix}/` === PEER_PREFIX)
      return Array.from(this.#peers, ([key, { value }]) => ({ key: new Key(key, false), value }));
    // The reprovider of kad-dht walks all providers; the sweep and the expiry of the store do its work.
    if (!prefix.startsWith(PROVIDER_PREFIX)) return [];
    return await this.#providers(prefix);
  }

  async #providers(prefix: string): Promise<Pair[]> {
    const multihash = base32.baseDecode(prefix.slice(PROVIDER_PREFIX.length));
    const now_ms = sched.wall_ms();
    const [rows, isOwn] = await Promise.all([
      this.#init.store.dhtQuery(`${prefix}/`, { now_ms, limit: PROVIDERS_MAX }),
      this.#init.provides(multihash),
    ]);
    const listed = rows.filter(({ key }) => {
      const id = key.slice(prefix.length + 1);
      return this.#init.isAllowed(id) && this.#peers.has(peerKey(id));
    });
    if (isOwn) listed.unshift({ key: `${prefix}/${this.#init.self}`, value: varint(now_ms) });
    return listed.map(({ key, value }) => ({ key: new Key(key, false), value }));
  }

  async #putProvider(key: string, value: Uint8Array): Promise<void> {
    const now_ms = sched.wall_ms();
    // [index I-9] Beyond the quotas the store refuses the record, and the peer gets a reset.
    const subject = key.slice(key.lastIndexOf('/') + 1);
    await this.#init.store.dhtPut(key, value, { subject, expires_ms: now_ms + VALID_MS, now_ms });
  }

  /** Refuses a record that is not newer than the stored one, unless it is the same. */
  async #putRecord(key: string, value: Uint8Array): Promise<void> {
    const next = orderOfNameValue(decodeRecord(value).value);
    if (next === undefined) throw new RonError('unprocessable', 'name record refused: malformed');
    await this.#records.run(key, NEVER, async () => {
      const now_ms = sched.wall_ms();
      const stored = await this.#init.store.dhtGet(key, now_ms);
      const current = stored && orderOfNameValue(decodeRecord(stored).value);
      if (current !== undefined && supersedes(current, next))
        throw new RonError('unprocessable', 'name record refused: a newer one is stored');
      const expires_ms = Math.min(next.not_after * 1000, now_ms + VALID_MS);
      await this.#init.store.dhtPut(key, value, { subject: `name:${next.key}`, expires_ms, now_ms });
    });
  }

  #putPeer(key: string, value: Uint8Array): void {
    this.#peers.delete(key);
    this.#peers.set(key, { value, isDirty: true });
    this.#removed.delete(key);
    if (this.#peers.size > PEERS_MAX) this.#dropPeer(this.#peers.keys().next().value!);
    this.#schedule();
  }

  #dropPeer(key: string): void {
    if (!this.#peers.delete(key)) return;
    // Beyond the bound the row stays until it expires.
    if (this.#removed.size < PEERS_MAX) this.#removed.add(key);
    this.#schedule();
  }

  #schedule(): void {
    // libp2p still notes disconnected peers while it stops.
    if (this.#isClosed) return;
    this.#timer ??= sched.timer(
      FLUSH_MS,
      () => {
        this.#flush = this.#write().catch(this.#init.warn);
      },
      'dht_peers',
    );
  }

  async #write(): Promise<void> {
    await this.#flush;
    this.#timer = undefined;
    const now_ms = sched.wall_ms();
    for (const key of Array.from(this.#removed)) {
      await this.#init.store.dhtDelete(key);
      this.#removed.delete(key);
    }
    for (const [key, row] of Array.from(this.#peers)) {
      if (!row.isDirty) continue;
      await this.#init.store.dhtPut(key, row.value, { subject: key, expires_ms: now_ms + PEER_AGE_MS, now_ms });
      row.isDirty = false;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    this.#timer?.cancel();
    await this.#write().catch(this.#init.warn);
    await this.#records.close();
  }
}

/** As the peer store of libp2p forms it. */
const peerKey = (id: string): string => `${PEER_PREFIX}${peerIdFromString(id).toCID().toString()}`;

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 0x80);
  return Uint8Array.from([...bytes, rest]);
}
