/**
 * Wraps the secrets of providers with a key of kms: `aes-256-gcm`, tenant `interop`, purpose `webhooks`.
 *
 * Contract: the additional data names provider and version, so a wrapped secret opens as itself only. The key is found in kms, or
 * created at the first use; each wrapped secret names its own. The capability is read before each call, because it is renewed
 * in its file, and it is narrowed to the call; only a private connection receives it.
 * Bound: the deadline of `call` for each call. Cancellation: by the signal of each call.
 */
import { narrowed } from '@ron/auth/narrowed';
import { KmsClient, type AuthorizedRequest } from '@ron/client';
import { reachPrivately } from '@ron/client/node';
import { readSecretFile } from '@ron/log';
import type { WrappedSecret } from './stored-provider.ts';

const TENANT = 'interop';
const PURPOSE = 'webhooks';
const ALG = 'aes-256-gcm';
/** Two starts at a time must not create two keys. */
const OP_ID = 'interop-webhooks';
/** `call` limits and repeats. */
const ONCE = { tries_max: 1, backoff_ms: () => 0 } as const;

export interface SecretWrapper {
  wrap(provider: string, version: number, bytes: Uint8Array, signal: AbortSignal): Promise<WrappedSecret>;
  /** The caller zeroes the result. */
  unwrap(provider: string, version: number, wrapped: WrappedSecret, signal: AbortSignal): Promise<Uint8Array>;
}

/** Runs one call to kms within the deadline `kms`. */
export type KmsCall = <T>(op: string, signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>) => Promise<T>;

export interface KmsSecretsInit {
  /** `unix:PATH`, or `https://` with a pin. */
  readonly url: string;
  readonly pin: string | undefined;
  readonly capability_file: string;
  /** For a new connection. */
  readonly connect_ms: number;
  readonly call: KmsCall;
}

export function kmsSecrets({ url, pin, capability_file, connect_ms, call }: KmsSecretsInit): SecretWrapper {
  const kms = reachPrivately(url, pin);
  let known_kid: string | undefined;
  const client = async (): Promise<KmsClient> => {
    const token = await readSecretFile(capability_file);
    const authorize = ({ body }: AuthorizedRequest): string => narrowed(token, { audience: 'kms', body });
    return new KmsClient({ ...kms, authorize, connect_ms, policy: ONCE });
  };
  return {
    async wrap(provider, version, bytes, signal) {
      const kid =
        known_kid ?? (await call('find_key', signal, async (within) => await findKey(await client(), within)));
      known_kid = undefined;
      const wrapped = await call('wrap', signal, async (within) =>
        (await client()).wrap(kid, bytes, aadOf(provider, version), { signal: within }),
      );
      // Kept only after a success: the key may have been disabled or deleted.
      known_kid = kid;
      return { kid: wrapped.kid, wrapped_b64: wrapped.wrapped_b64 };
    },
    unwrap: (provider, version, { kid, wrapped_b64 }, signal) =>
      call('unwrap', signal, async (within) =>
        (await client()).unwrap(kid, wrapped_b64, aadOf(provider, version), { signal: within }),
      ),
  };
}

async function findKey(client: KmsClient, signal: AbortSignal): Promise<string> {
  for await (const { kid, state } of client.keys({ tenant: TENANT, prefix: `${TENANT}/${PURPOSE}/${ALG}/`, signal })) {
    if (state === 'enabled') return kid;
  }
  return (await client.createKey({ tenant: TENANT, purpose: PURPOSE, alg: ALG, op_id: OP_ID }, { signal })).kid;
}

const aadOf = (provider: string, version: number): Uint8Array => Buffer.from(`interop/v1\n${provider}\n${version}`);
