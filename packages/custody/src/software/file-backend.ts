/**
 * Keys in a record store; see store/.
 *
 * Contract: a key that `create` returned survives any crash. A destroyed key does not return, unless the store is rolled
 * back, which its owner detects. Each secret is sealed separately inside its record, so it is in plaintext only while it is
 * loaded into a key object.
 * Bound: `keys_max` keys, of which `LOADED_MAX` are in memory. Cancellation: see store/record-store.ts. The owner closes the
 * store after the backend.
 */
import { assert, NEVER } from '@ron/kernel';
import { isAlg, type Alg } from '../algorithms/algorithms.ts';
import { noSuchKey } from '../backend/backend.ts';
import type { LmdbStore } from '../store/lmdb-store.ts';
import { Table } from '../store/table.ts';
import { noRoom, SoftBackend, type KeyStore, type StoredKey } from './soft-backend.ts';

/** The table of private keys. */
export const SECRETS = 'secrets';
const FILE_KEYS_MAX = 11_000_000;
const LOADED_MAX = 16_384;

export interface FileBackendInit {
  /** With a table `SECRETS`. */
  store: Pick<LmdbStore, 'get' | 'has' | 'count' | 'commit' | 'seal' | 'unseal'>;
  /** Default 11 000 000. */
  keys_max?: number;
  /** Default 16 384. */
  loaded_max?: number;
}

/** A private key as it is stored. */
export interface SecretRecord {
  readonly alg: Alg;
  readonly label: string;
  /** The secret, sealed for this key and algorithm. */
  readonly sealed_b64: string;
  readonly spent: number;
}

export class FileBackend extends SoftBackend {
  constructor({ store, keys_max = FILE_KEYS_MAX, loaded_max = LOADED_MAX }: FileBackendInit) {
    const keys = new SecretStore(store, keys_max, loaded_max);
    super({ name: 'file', attestation_class: 'software:sealed-file', store: keys });
  }
}

const table = new Table<SecretRecord>(SECRETS);

class SecretStore implements KeyStore {
  readonly #store: FileBackendInit['store'];
  readonly #keys_max: number;
  readonly loaded_max: number;

  constructor(store: FileBackendInit['store'], keys_max: number, loaded_max: number) {
    this.#store = store;
    this.#keys_max = keys_max;
    this.loaded_max = loaded_max;
  }

  get(key: string): StoredKey | undefined {
    const record = table.get(this.#store, key);
    if (record === undefined) return undefined;
    const { alg, spent, sealed_b64 } = record;
    assert(isAlg(alg) && Number.isSafeInteger(spent), 'the record of a private key is whole');
    return { alg, spent, secret: () => this.#store.unseal(partOf(key, alg), Buffer.from(sealed_b64, 'base64')) };
  }

  async add(key: string, alg: Alg, label: string, secret: Uint8Array, signal: AbortSignal): Promise<void> {
    const record = secretRecord(this.#store, key, { alg, label, spent: 0 }, secret);
    await this.#store.commit((draft) => {
      if (table.count(draft) >= this.#keys_max) throw noRoom(this.#keys_max);
      table.put(draft, key, record);
    }, signal);
  }

  async remove(key: string, signal: AbortSignal): Promise<void> {
    if (table.has(this.#store, key)) await this.#store.commit((draft) => table.remove(draft, key), signal);
  }

  async reserve(key: string, spent: number): Promise<void> {
    await this.#store.commit((draft) => {
      const record = table.get(draft, key);
      if (record === undefined) throw noSuchKey();
      table.put(draft, key, { ...record, spent });
    }, NEVER);
  }

  async close(): Promise<void> {}
}

/** Seals a secret for a record. */
export function secretRecord(
  store: Pick<LmdbStore, 'seal'>,
  key: string,
  fields: Omit<SecretRecord, 'sealed_b64'>,
  secret: Uint8Array,
): SecretRecord {
  const sealed_b64 = Buffer.from(store.seal(partOf(key, fields.alg), secret)).toString('base64');
  return { ...fields, sealed_b64 };
}

const partOf = (key: string, alg: Alg): string => `${key}\n${alg}`;
