/**
 * Opens the configured key backend.
 *
 * Contract: there is no fallback: if a token is unavailable, kms does not sign with another backend. The PIN comes from a
 * private file or from the environment, and never appears in logs or errors. The code of a token or of the cloud is
 * loaded only if it is configured.
 */
import { MemoryBackend, type Backend } from '@ron/custody';
import { RonError } from '@ron/kernel';
import { readSecretFile } from '@ron/log';
import type { KmsConfig } from '../config.ts';
import { egressOf } from '../egress.ts';

export const PIN_VARIABLE = 'RON_PIN';

export interface BackendInit {
  readonly config: KmsConfig;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The sealed file. It is always open, because it holds the keys of the audit log. */
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
    const { CloudBackend } = await import('@ron/custody/cloud');
    return await CloudBackend.open({
      region: region!,
      ...(endpoint === undefined ? {} : { endpoint }),
      egress,
      signal,
    });
  }
  const { module, token, sessions } = config.pkcs11;
  const pin = await pinOf(config, env);
  // A TPM processes one command at a time.
  const count = backend === 'tpm' ? 1 : sessions;
  const { Pkcs11Backend } = await import('@ron/custody/pkcs11');
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
