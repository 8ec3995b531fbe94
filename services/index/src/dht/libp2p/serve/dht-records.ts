/**
 * The provider and name records that this node keeps for the network.
 *
 * Contract: provider records live 48 hours, name records until their `not_after`, at most 48 hours; expired entries are not
 * returned. The quotas of the store refuse further entries with `storage_full`. A name record is accepted only if it belongs to
 * its key and `Names` accepts it; one with a lower seq never replaces a newer one, even if both arrive at once, and none
 * replaces a record with `moved_to`. Of two records with one seq, and of a move and a record beyond it, both are kept and returned in turn, so that a reader that asks several peers sees both.
 * Bound: `PROVIDERS_MAX` providers of a key are read; one record and one rival per name.
 * Cancellation: the calls of the store have their own deadline.
 */
import { KeyedMutex, NEVER, RonError, sched } from '@ron/kernel';
import { base32 } from 'multiformats/bases/base32';
import type { Names } from '../../../publish/names.ts';
import type { IndexStore } from '../../../store/index-store.ts';
import { isSameRecord, supersedes } from '../../../store/record-order.ts';
import { decodeRecord, encodeRecord, PROVIDERS_MAX } from '../wire/message.ts';
import { orderOfNameValue, verifyNameValue, type RecordOrder } from './name-records.ts';

export interface DhtRecordsInit {
  readonly store: Pick<IndexStore, 'dhtGet' | 'dhtPut' | 'dhtDelete' | 'dhtQuery'>;
  readonly names: Pick<Names, 'accepts'>;
  /** Whether this node provides the key itself. */
  readonly provides: (key: Uint8Array) => Promise<boolean>;
  readonly self: string;
}

const VALID_MS = 48 * 3_600_000;
/** A sha2-256 multihash. */
const KEY_BYTES = 34;
const KEY_PREFIX = [0x12, 0x20] as const;
/** The layout of kad-dht, which the store knows. */
const providerPrefix = (key: Uint8Array): string => `/dht/provider/${base32.baseEncode(key)}/`;
const recordKey = (key: Uint8Array): string => `/dht/record/${base32.baseEncode(key)}`;
const rivalKey = (row: string): string => `${row}/rival`;

export class DhtRecords implements AsyncDisposable {
  readonly #init: DhtRecordsInit;
  /** Names whose record is being replaced. */
  readonly #replacing = new KeyedMutex('dht_records', { keys_max: 1024, waiters_max: 64 });
  #turn = 0;

  constructor(init: DhtRecordsInit) {
    this.#init = init;
  }

  /** The peer ids of providers. */
  async providersOf(key: Uint8Array): Promise<string[]> {
    requireProviderKey(key);
    const { store, provides, self } = this.#init;
    const prefix = providerPrefix(key);
    const [rows, isOwn] = await Promise.all([
      store.dhtQuery(prefix, { now_ms: sched.wall_ms(), limit: PROVIDERS_MAX }),
      provides(key),
    ]);
    const ids = rows.map((row) => row.key.slice(prefix.length));
    return isOwn ? [self, ...ids] : ids;
  }

  /** Rejects with `storage_full` beyond the quotas. */
  async addProvider(key: Uint8Array, peer: string): Promise<void> {
    requireProviderKey(key);
    const now_ms = sched.wall_ms();
    // [index I-9]
    const init = { subject: peer, expires_ms: now_ms + VALID_MS, now_ms };
    await this.#init.store.dhtPut(`${providerPrefix(key)}${peer}`, EMPTY, init);
  }

  /** The encoded record of a name. */
  async getRecord(key: Uint8Array): Promise<Uint8Array | undefined> {
    const row = recordKey(key);
    const now_ms = sched.wall_ms();
    const [record, rival] = await Promise.all([
      this.#init.store.dhtGet(row, now_ms),
      this.#init.store.dhtGet(rivalKey(row), now_ms),
    ]);
    return rival !== undefined && this.#turn++ % 2 === 1 ? rival : record;
  }

  /**
   * Rejects with `unprocessable` unless the value is acceptable and not older than the stored one, and with `storage_full` beyond
   * the quotas. `peer` sent it and is charged: keys of names are free.
   */
  async putRecord(key: Uint8Array, value: Uint8Array, peer: string): Promise<void> {
    const next = await verifyNameValue(this.#init.names, key, value);
    const row = recordKey(key);
    const bytes = encodeRecord({ key, value, received: new Date(sched.wall_ms()).toISOString() });
    await this.#replacing.run(row, NEVER, async () => {
      const stored = await this.#init.store.dhtGet(row, sched.wall_ms());
      const current = stored && orderOfNameValue(decodeRecord(stored).value);
      if (current === undefined || isSameRecord(current, next)) return await this.#write(row, bytes, next, peer);
      const isNext = supersedes(next, current);
      if (current.seq > next.seq && !isNext)
        throw new RonError('unprocessable', 'name record refused: a newer one is stored');
      if (current.seq < next.seq && isNext) return await this.#replace(row, bytes, next, peer);
      const [winner, loser] = isNext ? [bytes, stored!] : [stored!, bytes];
      await this.#write(rivalKey(row), loser, isNext ? current : next, peer);
      await this.#write(row, winner, isNext ? next : current, peer);
    });
  }

  async #replace(row: string, bytes: Uint8Array, order: RecordOrder, peer: string): Promise<void> {
    await this.#write(row, bytes, order, peer);
    await this.#init.store.dhtDelete(rivalKey(row));
  }

  async #write(row: string, bytes: Uint8Array, { not_after }: RecordOrder, peer: string): Promise<void> {
    const now_ms = sched.wall_ms();
    const expires_ms = Math.min(not_after * 1000, now_ms + VALID_MS);
    // [index I-9]
    await this.#init.store.dhtPut(row, bytes, { subject: peer, expires_ms, now_ms });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#replacing.close();
  }
}

function requireProviderKey(key: Uint8Array): void {
  if (key.length !== KEY_BYTES || key[0] !== KEY_PREFIX[0] || key[1] !== KEY_PREFIX[1])
    throw new RonError('bad_request', 'the key of a provider record is a sha2-256 multihash');
}

const EMPTY = new Uint8Array(0);
