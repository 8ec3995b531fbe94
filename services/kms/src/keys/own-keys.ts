/**
 * The capability keys of kms, and the owner's capability.
 *
 * Contract: the owner's capability has every scope of kms, is written with mode 0600, and is replaced before it expires or
 * when it no longer verifies. It is replaced before a rotation of the root is answered, so retiring the previous version
 * leaves no time in which the file holds an invalid capability.
 */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import {
  Checker,
  DerivedKeySource,
  inspectToken,
  mint,
  OWNER_SUBJECT,
  type KeyDeriver,
  type KeySource,
  type RevocationEpochs,
} from '@ron/auth';
import type { ServiceAuth } from '@ron/auth/service';
import { resealFile } from '@ron/custody/sealed';
import { sched } from '@ron/kernel';
import { readSecretFile, writeSecret } from '@ron/log';
import { scopesOf } from '@ron/proto';
import type { KmsContext } from '../service.ts';
import { openUnlock } from '../unlock.ts';
import type { Vault } from '../vault/vault.ts';

const DAY_MS = 24 * 3600 * 1000;
const OWNER_TTL_MS = 90 * DAY_MS;
const RENEW_MS = 30 * DAY_MS;

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

/**
 * Opens the capability keys of kms: derived by its own root, cached under a key of the vault. Returns a function that
 * renews the owner's capability after a rotation of the root.
 */
export async function openAuthFor(
  context: KmsContext,
  { dir, unlock }: Pick<Vault, 'dir' | 'unlock'>,
  deriver: KeyDeriver,
): Promise<(signal: AbortSignal) => Promise<void>> {
  const { config, env, fs, log, signal, openAuth } = context;
  if (dir !== undefined && unlock !== undefined) {
    // Earlier versions sealed it with the key of the vault itself, which may change.
    const path = config.auth.cache_file ?? join(dir, 'auth', 'cache');
    const before = [await openUnlock({ config, dir, env, fs, warn: () => undefined })];
    await resealFile({ path, purpose: 'capability-cache', next: unlock, before, signal });
  }
  const { owner_file } = config.auth;
  const renewOwner = async (): Promise<void> => {
    if (owner_file !== undefined)
      await writeOwnerFile({ path: owner_file, keys: auth.keys, epochs: auth.epochs, signal });
  };
  const auth: ServiceAuth = await openAuth({ dir, deriver, unlock, onRefreshed: renewOwner });
  await renewOwner();
  return async (within) => {
    if (!(auth.keys instanceof DerivedKeySource)) return;
    try {
      await auth.keys.refresh('kms', within);
      await renewOwner();
    } catch (err) {
      // The root is rotated; the task that polls its state renews the capability too.
      log.warn({ err }, "failed to renew the owner's capability after the rotation of the audience root");
    }
  };
}
