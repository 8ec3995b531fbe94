/**
 * The root of all audience keys, which kms stores itself, and the owner's capability.
 *
 * Contract: the root is an ordinary key with a well-known name: it is rotated and retired like any other and never leaves
 * the backend. It is created once. The owner's capability has every scope of kms, is written with mode 0600, and is replaced
 * before it expires or when it no longer verifies.
 */
import { stat } from 'node:fs/promises';
import {
  AUDIENCE_ROOT,
  Checker,
  inspectToken,
  mint,
  OWNER_SUBJECT,
  type KeyDeriver,
  type KeySource,
  type RevocationEpochs,
} from '@ron/auth';
import type { ServiceAuth } from '@ron/auth/service';
import type { Backend } from '@ron/custody';
import { sched } from '@ron/kernel';
import { readSecretFile, writeSecret } from '@ron/log';
import { scopesOf } from '@ron/proto';
import type { KeyRegistry } from './key-registry.ts';
import { parseKid } from './kid.ts';
import type { KmsContext } from '../service.ts';
import type { SecretOperations } from '../secrets/secret-operations.ts';
import { openUnlock } from '../unlock.ts';
import type { Vault } from '../vault/vault.ts';

const DAY_MS = 24 * 3600 * 1000;
const OWNER_TTL_MS = 90 * DAY_MS;
const RENEW_MS = 30 * DAY_MS;

/** Derives from the root, which is created on first use. */
export function rootDeriver(registry: KeyRegistry, backend: Backend, secrets: SecretOperations): KeyDeriver {
  return {
    async derive(label, version, signal) {
      if (registry.index.get(AUDIENCE_ROOT) === undefined) await makeRoot(registry, backend, signal);
      const kid = version === undefined ? AUDIENCE_ROOT : `${AUDIENCE_ROOT}#v${version}`;
      const { bytes, found } = await secrets.derive(kid, label, signal);
      return { version: found.version.version, version_min: found.record.min_version, secret: bytes };
    },
  };
}

async function makeRoot(registry: KeyRegistry, backend: Backend, signal: AbortSignal): Promise<void> {
  const { name, tenant, purpose, alg } = parseKid(AUDIENCE_ROOT);
  const handle = await backend.create(alg, name, signal);
  const version = { version: 1, handle: handle.key, public: [], created_ms: sched.wall_ms() };
  const record = { name, tenant, purpose, alg, verify_mode: 'and', min_version: 1, imported: false } as const;
  const made = await registry.change((index) => index.get(name) ?? { ...record, versions: [version] }, signal);
  if (made.versions[0]?.handle !== handle.key) await backend.destroy(handle.key, signal);
}

export interface OwnerFileInit {
  readonly path: string;
  readonly keys: KeySource;
  readonly epochs: RevocationEpochs;
  readonly signal: AbortSignal;
}

/**
 * Writes a capability with all scopes of kms for the owner of the file. A file that other users can read is not replaced:
 * that would hide the exposure, and the exposed capability would still be valid. Its user refuses the file and reports it.
 */
export async function writeOwnerFile({ path, keys, epochs, signal }: OwnerFileInit): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (found?.isFile() === true && (found.mode & 0o077) !== 0) return;
  const kept = await readSecretFile(path).catch(() => undefined);
  if (kept !== undefined && (await isGood(kept, keys, epochs, signal))) return;
  const scopes = scopesOf('kms');
  const epoch = Math.max(sched.wall_ms(), epochs.floor(OWNER_SUBJECT));
  const { token } = await mint(
    keys,
    { audience: 'kms', scopes, ttl_ms: OWNER_TTL_MS, subject: OWNER_SUBJECT, epoch },
    signal,
  );
  await writeSecret(path, `${token}\n`);
}

async function isGood(token: string, keys: KeySource, epochs: RevocationEpochs, signal: AbortSignal): Promise<boolean> {
  try {
    const { scopes, expires_ms, key_id } = inspectToken(token);
    if (key_id !== (await keys.current('kms', signal)).key_id) return false;
    if (!scopesOf('kms').every((scope) => scopes.includes(scope))) return false;
    if (expires_ms - sched.wall_ms() < RENEW_MS) return false;
    const checker = new Checker({ audience: 'kms', keys, epochs });
    const request = { authorization: `Bearer ${token}`, scope: 'kms:read', source_ip: '127.0.0.1' } as const;
    return (await checker.checkHeaders(request, signal)).ok;
  } catch {
    return false;
  }
}

/** Opens the capability keys of kms: derived by its own root, cached under the same seal as its other data. */
export async function openAuthFor(context: KmsContext, vault: Vault, secrets: SecretOperations): Promise<void> {
  const { config, env, fs, signal, openAuth } = context;
  const { dir, registry, backend } = vault;
  const warn = (): void => undefined;
  const unlock = dir === undefined ? undefined : await openUnlock({ config, dir, env, fs, warn });
  const { owner_file } = config.auth;
  const renewOwner = async (): Promise<void> => {
    if (owner_file !== undefined)
      await writeOwnerFile({ path: owner_file, keys: auth.keys, epochs: auth.epochs, signal });
  };
  const deriver = rootDeriver(registry, backend, secrets);
  const auth: ServiceAuth = await openAuth({ dir, deriver, unlock, onRefreshed: renewOwner });
  await renewOwner();
}
