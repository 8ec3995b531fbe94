/**
 * The secrets of providers: as key objects in memory; wrapped by kms and sealed locally on disk.
 *
 * Contract: plaintext bytes exist only during a call and are zeroed. With kms, a secret is stored wrapped; with the cache, it is
 * also sealed in the file of its provider, so that a start does not need kms. `open` prefers the sealed copy.
 * Without kms, the sealed copy is the only one. No error holds a secret.
 * Bound: the keys of live secrets. Cancellation: by the signal of each call.
 */
import type { KeyObject } from 'node:crypto';
import { assert, isRonError, RonError } from '@ron/kernel';
import { keyOfSecret, type SecretBytes } from '../../signatures/secret-text.ts';
import type { SecretWrapper } from './kms-secrets.ts';
import type { PartSealer } from '../files/provider-files.ts';
import type { StoredSecret } from '../files/stored-provider.ts';

export interface ProviderSecretsInit {
  /** Undefined without kms. */
  readonly kms: SecretWrapper | undefined;
  /** Whether secrets are also sealed locally. */
  readonly caches: boolean;
}

/** The stored forms of a secret. */
export type SecretForms = Pick<StoredSecret, 'wrapped' | 'sealed_b64'>;

export class ProviderSecrets {
  readonly #kms: SecretWrapper | undefined;
  readonly #caches: boolean;
  /** By provider and version. */
  readonly #keys = new Map<string, Map<number, KeyObject>>();

  constructor({ kms, caches }: ProviderSecretsInit) {
    this.#kms = kms;
    this.#caches = caches;
  }

  key(provider: string, version: number): KeyObject | undefined {
    return this.#keys.get(provider)?.get(version);
  }

  hold(provider: string, version: number, secret: SecretBytes): void {
    let keys = this.#keys.get(provider);
    if (keys === undefined) this.#keys.set(provider, (keys = new Map<number, KeyObject>()));
    keys.set(version, keyOfSecret(secret));
  }

  /** Drops the keys of all other versions. */
  keepOnly(provider: string, versions: readonly number[]): void {
    const keys = this.#keys.get(provider);
    for (const version of keys?.keys() ?? []) if (!versions.includes(version)) keys!.delete(version);
    if (keys?.size === 0) this.#keys.delete(provider);
  }

  /** Whether the stored forms are those that the configuration requires. */
  isAsConfigured({ wrapped, sealed_b64 }: SecretForms): boolean {
    return (sealed_b64 !== undefined) === this.#caches && (wrapped !== undefined || this.#kms === undefined);
  }

  /** Throws `not_ready` if kms is away. Undefined without kms. */
  async wrap(
    provider: string,
    version: number,
    bytes: Uint8Array,
    signal: AbortSignal,
  ): Promise<StoredSecret['wrapped']> {
    try {
      return await this.#kms?.wrap(provider, version, bytes, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw kmsAway('kms cannot wrap the secret: nothing was changed', error);
    }
  }

  /** The forms to store. Keeps the wrapped one. */
  forms(sealer: PartSealer, version: number, bytes: Uint8Array, wrapped: StoredSecret['wrapped']): SecretForms {
    const sealed = this.#caches ? sealer.seal(contextOf(version), bytes) : undefined;
    assert(wrapped !== undefined || sealed !== undefined, 'a secret is stored in one form at least');
    return {
      ...(wrapped !== undefined && { wrapped }),
      ...(sealed !== undefined && { sealed_b64: Buffer.from(sealed).toString('base64') }),
    };
  }

  /** Loads the key from the sealed copy; false if there is none. Throws if it does not open. */
  load(provider: string, secret: StoredSecret, sealer: PartSealer): boolean {
    const bytes = sealedBytes(secret, sealer);
    if (bytes === undefined) return false;
    try {
      this.hold(provider, secret.version, { kind: secret.kind, bytes });
      return true;
    } finally {
      bytes.fill(0);
    }
  }

  /** Loads the key unless it is loaded, with kms if necessary, and returns the secret in the forms that the configuration requires. Throws `not_ready` if kms is away. */
  async reconcile(
    provider: string,
    secret: StoredSecret,
    sealer: PartSealer,
    signal: AbortSignal,
  ): Promise<StoredSecret> {
    const { version, kind } = secret;
    if (this.key(provider, version) !== undefined && this.isAsConfigured(secret)) return secret;
    const bytes = sealedBytes(secret, sealer) ?? (await this.#unwrap(provider, secret, signal));
    try {
      this.hold(provider, version, { kind, bytes });
      if (this.isAsConfigured(secret)) return secret;
      const wrapped = secret.wrapped ?? (await this.wrap(provider, version, bytes, signal));
      const { wrapped: _wrapped, sealed_b64: _sealed, ...rest } = secret;
      return { ...rest, ...this.forms(sealer, version, bytes, wrapped) };
    } finally {
      bytes.fill(0);
    }
  }

  async #unwrap(provider: string, { version, wrapped }: StoredSecret, signal: AbortSignal): Promise<Uint8Array> {
    if (wrapped === undefined || this.#kms === undefined)
      throw new RonError('not_ready', 'kms wrapped the secret, and no kms is configured');
    try {
      return await this.#kms.unwrap(provider, version, wrapped, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw kmsAway('kms cannot unwrap the secret', error);
    }
  }
}

function sealedBytes({ version, sealed_b64 }: StoredSecret, sealer: PartSealer): Uint8Array | undefined {
  return sealed_b64 === undefined ? undefined : sealer.unseal(contextOf(version), Buffer.from(sealed_b64, 'base64'));
}

const contextOf = (version: number): string => `secret/${version}`;

/** Only the code of the cause: a text of another server is not repeated. */
function kmsAway(problem: string, error: unknown): RonError {
  const code = isRonError(error) ? error.code : 'unknown';
  const why = code === 'conflict' ? 'its key is disabled, deleted or below min_version' : code;
  return new RonError('not_ready', `${problem} (${why})`, { reason: 'DOWNSTREAM_UNAVAILABLE', retry_after_ms: 1000 });
}
