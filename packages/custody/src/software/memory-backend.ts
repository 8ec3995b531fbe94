/**
 * Keys that are lost when the process exits: for amnesia mode and for tests.
 *
 * Contract: nothing is written. Bound: `keys_max` keys.
 */
import type { Alg } from '../algorithms/algorithms.ts';
import { KEYS_MAX } from '../backend/backend.ts';
import { noRoom, SoftBackend, type KeyStore, type StoredKey } from './soft-backend.ts';

export interface MemoryBackendInit {
  /** Default `KEYS_MAX`. */
  keys_max?: number;
}

export class MemoryBackend extends SoftBackend {
  constructor(init: MemoryBackendInit = {}) {
    super({
      name: 'memory',
      attestation_class: 'software:memory',
      store: new MemoryStore(init.keys_max ?? KEYS_MAX),
    });
  }
}

/** Only counts keys: the backend's key objects are the keys. */
class MemoryStore implements KeyStore {
  readonly loaded_max = Infinity;
  readonly #keys_max: number;
  readonly #keys = new Set<string>();

  constructor(keys_max: number) {
    this.#keys_max = keys_max;
  }

  get(): StoredKey | undefined {
    return undefined;
  }

  async add(key: string, _alg: Alg, _label: string, _secret: Uint8Array, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#keys.size >= this.#keys_max) throw noRoom(this.#keys_max);
    this.#keys.add(key);
  }

  async remove(key: string): Promise<void> {
    this.#keys.delete(key);
  }

  reserve(): Promise<void> {
    return Promise.resolve();
  }

  async close(): Promise<void> {
    this.#keys.clear();
  }
}
