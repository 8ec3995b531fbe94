/** The datastore of libp2p: it keeps peers only. Provider and name records are kept by `DhtRecords`. */
import { NotFoundError } from '@libp2p/interface';
import { RonError } from '@ron/kernel';
import { Key, type Batch, type Datastore, type KeyQuery, type Pair, type Query } from 'interface-datastore';
import { PEER_PREFIX, type PeerRows } from './peer-rows.ts';

export class PeerDatastore implements Datastore {
  readonly #rows: PeerRows;

  constructor(rows: PeerRows) {
    this.#rows = rows;
  }

  get(key: Key): Uint8Array {
    const value = this.#rows.get(key.toString());
    if (value === undefined) throw new NotFoundError('the peer is not known');
    return value;
  }

  has(key: Key): boolean {
    return this.#rows.get(key.toString()) !== undefined;
  }

  put(key: Key, value: Uint8Array): Key {
    if (!key.toString().startsWith(PEER_PREFIX)) throw new RonError('internal', 'libp2p stores only peers');
    this.#rows.put(key.toString(), value);
    return key;
  }

  delete(key: Key): void {
    this.#rows.drop(key.toString());
  }

  *query({ prefix = '', filters = [], orders = [], offset = 0, limit }: Query): Generator<Pair> {
    const pairs = this.#rows
      .entries()
      .filter(({ key }) => key.startsWith(prefix))
      .map(({ key, value }) => ({ key: new Key(key, false), value }))
      .filter((pair) => filters.every((accepts) => accepts(pair)));
    for (const order of orders) pairs.sort(order);
    yield* pairs.slice(offset, limit === undefined ? undefined : offset + limit);
  }

  *queryKeys({ prefix, filters = [] }: KeyQuery): Generator<Key> {
    const ofPairs = filters.map((accepts) => (pair: Pair) => accepts(pair.key));
    for (const { key } of this.query({ ...(prefix !== undefined && { prefix }), filters: ofPairs })) yield key;
  }

  async *putMany(source: Iterable<Pair> | AsyncIterable<Pair>): AsyncGenerator<Key> {
    for await (const { key, value } of source) yield this.put(key, value);
  }

  async *getMany(source: Iterable<Key> | AsyncIterable<Key>): AsyncGenerator<Pair> {
    for await (const key of source) yield { key, value: this.get(key) };
  }

  async *deleteMany(source: Iterable<Key> | AsyncIterable<Key>): AsyncGenerator<Key> {
    for await (const key of source) {
      this.delete(key);
      yield key;
    }
  }

  batch(): Batch {
    const steps: (() => void)[] = [];
    return {
      put: (key, value) => void steps.push(() => void this.put(key, value)),
      delete: (key) => void steps.push(() => this.delete(key)),
      commit: () => {
        for (const step of steps.splice(0)) step();
      },
    };
  }
}
