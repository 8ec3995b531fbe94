/**
 * Operations with keys that wrap and derive. Results are secrets of the caller and are neither stored nor logged.
 *
 * Contract: data wrapped under a key version unwraps only with that version and the same additional data. New data is
 * wrapped with the current version; older versions unwrap down to the minimum in force for data. A result is returned only
 * if the key was still usable when it was made: once a key has been disabled, no request gets a secret of it.
 * Bound: `PLAINTEXT_BYTES_MAX`, `AAD_BYTES_MAX`. Cancellation: by the signal.
 */
import { ALGORITHMS, type Backend, type Use } from '@ron/custody';
import { RonError, sched } from '@ron/kernel';
import type { KeyRegistry } from '../keys/key-registry.ts';
import type { Found } from '../keys/key-index.ts';
import { requireEnabled } from '../keys/key-record.ts';
import { formatKid } from '../keys/kid.ts';
import { minDataVersion } from '../keys/min-version.ts';

/** Large enough for a key, not for a document. */
export const PLAINTEXT_BYTES_MAX = 4096;
export const AAD_BYTES_MAX = 4096;
/** The envelope adds at most 1.2 KiB. */
export const WRAPPED_BYTES_MAX = PLAINTEXT_BYTES_MAX + 2048;
export const LABEL_PATTERN = '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}$';
export const DERIVED_BYTES = 32;

type SecretBackend = Pick<Backend, 'wrap' | 'unwrap' | 'derive'>;

export class SecretOperations {
  readonly #registry: Pick<KeyRegistry, 'index'>;
  readonly #backend: SecretBackend;

  constructor(registry: Pick<KeyRegistry, 'index'>, backend: SecretBackend) {
    this.#registry = registry;
    this.#backend = backend;
  }

  /** Throws if the key does not exist. */
  requireKey(kid: string): void {
    this.#registry.index.find(kid);
  }

  async wrap(kid: string, plaintext: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<WithKid> {
    return await this.#use(this.#registry.index.current(kid), 'wrap', (handle, full) =>
      this.#backend.wrap(handle, plaintext, boundAad(full, aad), signal),
    );
  }

  async unwrap(kid: string, wrapped: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<WithKid> {
    return await this.#use(this.#registry.index.find(kid), 'wrap', (handle, full) =>
      this.#backend.unwrap(handle, wrapped, boundAad(full, aad), signal),
    );
  }

  async derive(kid: string, label: string, signal: AbortSignal): Promise<WithKid> {
    return await this.#use(this.#registry.index.find(kid), 'derive', (handle) =>
      this.#backend.derive(handle, label, DERIVED_BYTES, signal),
    );
  }

  async #use(found: Found, use: Use, work: (handle: string, kid: string) => Promise<Uint8Array>): Promise<WithKid> {
    const kid = formatKid(found.record.name, found.version.version);
    const bytes = await work(usableHandle(found, kid, use), kid);
    // Load it again: the key may have been disabled or deleted meanwhile.
    usableHandle(this.#registry.index.find(kid), kid, use);
    return { found, kid, bytes };
  }
}

export interface WithKid {
  readonly found: Found;
  /** The kid of the version that was used. */
  readonly kid: string;
  readonly bytes: Uint8Array;
}

function usableHandle({ record, version }: Found, kid: string, use: Use): string {
  if (ALGORITHMS[record.alg].use !== use) throw new RonError('validation', `keys of ${record.alg} do not ${use}`);
  requireEnabled(record);
  if (version.deleted === true || version.handle === undefined) throw new RonError('conflict', `${kid} was deleted`);
  if (version.version < minDataVersion(record, sched.wall_ms()))
    throw new RonError('conflict', `${kid} is below min_version`);
  return version.handle;
}

/** Binds the version: data wrapped by one version does not unwrap with another. */
function boundAad(kid: string, aad: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from(`ron-kms/v1/wrap\n${kid}\n`), aad]);
}
