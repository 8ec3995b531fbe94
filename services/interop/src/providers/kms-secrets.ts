/**
 * Wraps the secrets of providers with a key of kms: `aes-256-gcm`, tenant `interop`, purpose `webhooks`.
 *
 * Contract: the additional data names provider and version, so a wrapped secret opens as itself only. Each wrapped secret names its
 * own key.
 * Bound: the deadline `kms` for each call. Cancellation: by the signal of each call.
 */
import type { KmsAccess } from '../upstreams/kms-access.ts';
import type { WrappedSecret } from './stored-provider.ts';

const KEY = { purpose: 'webhooks', alg: 'aes-256-gcm' } as const;

export interface SecretWrapper {
  wrap(provider: string, version: number, bytes: Uint8Array, signal: AbortSignal): Promise<WrappedSecret>;
  /** The caller zeroes the result. */
  unwrap(provider: string, version: number, wrapped: WrappedSecret, signal: AbortSignal): Promise<Uint8Array>;
}

export function kmsSecrets(kms: KmsAccess): SecretWrapper {
  let known_kid: string | undefined;
  return {
    async wrap(provider, version, bytes, signal) {
      const kid = known_kid ?? (await kms.findKey(KEY, signal));
      known_kid = undefined;
      const aad = aadOf(provider, version);
      const wrapped = await kms.run('wrap', signal, (client, within) =>
        client.wrap(kid, bytes, aad, { signal: within }),
      );
      // Kept only after a success: the key may have been disabled or deleted.
      known_kid = kid;
      return { kid: wrapped.kid, wrapped_b64: wrapped.wrapped_b64 };
    },
    unwrap: (provider, version, { kid, wrapped_b64 }, signal) =>
      kms.run('unwrap', signal, (client, within) =>
        client.unwrap(kid, wrapped_b64, aadOf(provider, version), { signal: within }),
      ),
  };
}

const aadOf = (provider: string, version: number): Uint8Array => Buffer.from(`interop/v1\n${provider}\n${version}`);
