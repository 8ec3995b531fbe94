/**
 * The task `provider_sweep`: keeps the own objects and the own names in the DHT.
 *
 * Contract: see `provide-loop.ts`. Objects are paced so that a sweep of all takes at most half of the interval.
 * Cancellation: `run` ends when its signal aborts.
 */
import { Deadline, TokenBucket } from '@ron/kernel';
import { positionOfAddress } from '../keys.ts';
import type { Address } from '@ron/proto';
import { joinSignedName } from '@ron/proto/names';
import type { IndexStore, StoredRecord } from '../../store/index-store.ts';
import type { DhtDriver } from '../driver.ts';
import { ObjectProvider } from './object-provider.ts';
import { INTERVAL_MS, ProvideLoop, type Placed } from './provide-loop.ts';

const OBJECTS_PER_S_MIN = 500;
const NAMES_PER_S = 20;
const NAME_MS = 5000;
const BURST = 256;

type Store = Pick<IndexStore, 'objects' | 'object' | 'countObjects' | 'names' | 'name' | 'readCursor' | 'saveCursor'>;

export interface ProvidingInit {
  readonly dht: Pick<DhtDriver, 'findClosest' | 'addProvider' | 'publishName' | 'known'>;
  readonly store: Store;
  readonly warn: (error: unknown) => void;
  /** Whether other nodes can read the objects. Otherwise only names are provided. */
  readonly isProvider: boolean;
}

type NamedRecord = Pick<StoredRecord, 'key' | 'label' | 'seq' | 'record' | 'signature'> & {
  readonly rival?: StoredRecord | undefined;
};

export class Providing {
  /** Undefined if other nodes cannot read the objects. */
  readonly #objects: ProvideLoop<Address> | undefined;
  readonly #names: ProvideLoop<NamedRecord>;

  constructor(init: ProvidingInit) {
    this.#objects = init.isProvider ? objectLoop(init) : undefined;
    this.#names = nameLoop(init);
  }

  /** Items that wait to be provided. */
  get pending(): number {
    return (this.#objects?.pending ?? 0) + this.#names.pending;
  }

  /** Own objects that are new. */
  announced(addresses: readonly Address[]): void {
    this.#objects?.offer(addresses);
  }

  /** An own name has a new record. */
  published(record: NamedRecord): void {
    this.#names.offer([record]);
  }

  async run(stopping: AbortSignal): Promise<void> {
    await Promise.all([this.#objects?.run(stopping), this.#names.run(stopping)]);
  }
}

function objectLoop({ dht, store, warn }: ProvidingInit): ProvideLoop<Address> {
  const bucket = new TokenBucket('provider_sweep', { rate_per_s: OBJECTS_PER_S_MIN, burst: BURST });
  const provider = new ObjectProvider(dht, bucket);
  return new ProvideLoop<Address>({
    name: 'provider_sweep',
    store,
    known: () => dht.known,
    keyOf: (address) => address,
    reread: async (address) => (await store.object(address))?.address,
    page: async (after, limit) => {
      bucket.setRate(Math.max(OBJECTS_PER_S_MIN, (2000 * (await store.countObjects())) / INTERVAL_MS));
      const page = await store.objects(after, limit);
      return page.map(({ address, routing_key }) => ({ item: address, position: routing_key }));
    },
    provide: (addresses, signal) => provider.provide(inKeyOrder(addresses), signal),
    warn,
  });
}

function inKeyOrder(addresses: readonly Address[]): Address[] {
  const placed = addresses.map((address) => ({ address, position: positionOfAddress(address) }));
  placed.sort((a, b) => Buffer.compare(a.position, b.position));
  return placed.map(({ address }) => address);
}

/** Name records age out in the DHT after 48 h, removals included. */
function nameLoop({ dht, store, warn }: ProvidingInit): ProvideLoop<NamedRecord> {
  const bucket = new TokenBucket('name_sweep', { rate_per_s: NAMES_PER_S, burst: NAMES_PER_S });
  const publish = async (name: NamedRecord, signal: AbortSignal): Promise<number> => {
    await bucket.take(1, signal);
    using deadline = Deadline.after('name_sweep', NAME_MS, { signal });
    const send = ({ signature, record }: Pick<NamedRecord, 'signature' | 'record'>): Promise<{ stored: number }> =>
      dht.publishName(name.key, name.label, joinSignedName(signature, record), deadline.signal);
    const { stored } = await send(name);
    // A peer that published the chain of the current record learns of the fork.
    if (name.rival !== undefined) await send(name.rival);
    return stored > 0 ? 1 : 0;
  };
  return new ProvideLoop<NamedRecord>({
    name: 'name_sweep',
    store,
    known: () => dht.known,
    keyOf: ({ key, label }) => `${label}\0${key}`,
    // The log may be ahead of the database.
    reread: async (offered) => {
      const current = await store.name(offered.key, offered.label);
      return current === undefined || current.seq < offered.seq ? offered : current;
    },
    page: async (after, limit): Promise<Placed<NamedRecord>[]> => {
      const page = await store.names('', after === undefined ? undefined : nameAt(after), limit);
      return page.map((name) => ({ item: name, position: Buffer.from(`${name.label}\0${name.key}`) }));
    },
    provide: async (names, signal) => {
      let stored = 0;
      for (const name of names) stored += await publish(name, signal);
      return stored;
    },
    warn,
  });
}

function nameAt(position: Uint8Array): { label: string; key: string } {
  const [label = '', key = ''] = Buffer.from(position).toString().split('\0');
  return { label, key };
}
