/**
 * The configured place of private keys.
 *
 * Promise: one backend, and no other in its stead: a token that is away is an outage, not a reason to sign elsewhere. The
 * PIN comes from a file of ours alone or from the environment, and is nowhere shown.
 */
import { CloudBackend, MemoryBackend, Pkcs11Backend, type Backend } from '@ron/custody';
import { RonError } from '@ron/kernel';
import type { KmsConfig } from '../config.ts';
import { egressOf } from '../egress.ts';
import { readSecretFile } from '../unlock.ts';

export const PIN_VARIABLE = 'RON_PIN';

export interface BackendInit {
  readonly config: KmsConfig;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The sealed file, which is there in any case: the keys of the audit log are in it. */
  readonly file: Backend;
  readonly signal: AbortSignal;
}

export async function openBackend({ config, env, file, signal }: BackendInit): Promise<Backend> {
  const { backend } = config.kms;
  if (backend === 'file') return file;
  if (backend === 'memory') return new MemoryBackend();
  if (backend === 'cloud') {
    const { region, endpoint } = config.cloud;
    const egress = await egressOf(config);
    return await CloudBackend.open({
      region: region!,
      ...(endpoint === undefined ? {} : { endpoint }),
      egress,
      signal,
    });
  }
  const { module, token, sessions } = config.pkcs11;
  const pin = await pinOf(config, env);
  // A TPM does one thing at a time.
  const count = backend === 'tpm' ? 1 : sessions;
  return await Pkcs11Backend.open({ name: backend, module: module!, token: token!, pin, sessions: count, signal });
}

async function pinOf(config: KmsConfig, env: BackendInit['env']): Promise<string> {
  const { pin_file } = config.pkcs11;
  if (pin_file !== undefined) return await readSecretFile(pin_file);
  const pin = env[PIN_VARIABLE];
  if (pin !== undefined && pin !== '') return pin;
  throw new RonError('not_ready', `the token needs a PIN: set pkcs11.pin_file, or ${PIN_VARIABLE} in the environment`, {
    op: 'key_file',
  });
}
