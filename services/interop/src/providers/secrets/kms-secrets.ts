/**
 * Wraps the secrets of providers with a key of kms: `aes-256-gcm`, tenant `interop`, purpose `webhooks`.
 *
 * Contract: the additional data names provider and version, so a wrapped secret opens as itself only. Each wrapped secret names its
 * own key. If the key was disabled or deleted, the next secret is wrapped by another.
 * Bound: the deadline `kms` for each call. Cancellation: by the signal of each call.
 */
import { isRonError } from '@ron/kernel';
import { splitKid, type WrappedKey } from '@ron/proto';
import type { KmsAccess } from '../../upstreams/kms-access.ts';
import type { WrappedSecret } from '../files/stored-provider.ts';

const KEY = { purpose: 'webhooks', alg: 'aes-256-gcm' } as const;

export interface SecretWrapper {
  wrap(provider: string, version: number, bytes: Uint8Array, signal: AbortSignal): Promise<WrappedSecret>;
  /** The caller zeroes the result. */
  unwrap(provider: string, version: number, wrapped: WrappedSecret, signal: AbortSignal): Promise<Uint8Array>;
}

export function kmsSecrets(kms: KmsAccess): SecretWrapper {
  /** Without its version: the current one wraps. */
  let name: string | undefined;
  return {
    async wrap(provider, version, bytes, signal) {
      const aad = aadOf(provider, version);
      const wrapBy = (kid: string): Promise<WrappedKey> =>
        kms.run('wrap', signal, (client, within) => client.wrap(kid, bytes, aad, { signal: within }));
      const wrapAgain = async (error: unknown): Promise<WrappedKey> => {
        // Disabled or deleted since it was found.
        if (!isRonError(error, 'conflict') && !isRonError(error, 'not_found')) throw error;
        return await wrapBy((name = nameOf(await kms.findKey(KEY, signal))));
      };
      name ??= nameOf(await kms.findKey(KEY, signal));
      const { kid, wrapped_b64 } = await wrapBy(name).catch(wrapAgain);
      return { kid, wrapped_b64 };
    },
    unwrap: (provider, version, { kid, wrapped_b64 }, signal) =>
      kms.run('unwrap', signal, (client, within) =>
        client.unwrap(kid, wrapped_b64, aadOf(provider, version), { signal: within }),
      ),
  };
}

const nameOf = (kid: string): string => splitKid(kid)!.name;

const aadOf = (provider: string, version: number): Uint8Array => Buffer.from(`interop/v1\n${provider}\n${version}`);
