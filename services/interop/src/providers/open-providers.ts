/**
 * Opens the providers at the start.
 *
 * Contract: damaged files, and a kms that is away, never fail the start. `not_ready` if the catalog may be intact and cannot be used:
 * the disk does not give it, or `RON_KEK` is another key. With a cache of secrets, the start makes no call to kms. In amnesia
 * all files lie in memory, sealed with a key of this process.
 * Bound: one round of `secret_refresh`, which ends after three failed calls to kms. Cancellation: by the signal of the start.
 */
import { join } from 'node:path';
import { KEK_BYTES, openUnlock } from '@ron/custody/sealed';
import { RonError, sched, type Broadcast, type Cell } from '@ron/kernel';
import { MemoryDisk, type FileSystem } from '@ron/log';
import type { InteropEvent } from '../events.ts';
import type { PolicyMeta } from '../policy-meta.ts';
import type { SecretWrapper } from './secrets/kms-secrets.ts';
import { ProviderFiles } from './files/provider-files.ts';
import { ProviderSecrets } from './secrets/provider-secrets.ts';
import { ProviderTable, type Routes } from './provider-table.ts';
import { Providers } from './providers.ts';
import { reconcileDue } from './secrets/secret-refresh.ts';

export interface OpenProvidersInit {
  /** The data directory. Undefined in amnesia. */
  readonly dir: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly fs: FileSystem;
  /** Undefined without kms: secrets are sealed locally only. */
  readonly kms: SecretWrapper | undefined;
  /** `secrets.cache`. */
  readonly caches: boolean;
  readonly policy: Cell<Pick<PolicyMeta, 'descriptors'>>;
  readonly routes: Cell<Routes>;
  readonly events: Pick<Broadcast<InteropEvent>, 'publish'>;
  readonly warn: (message: string) => void;
  readonly onRemoved: (provider: string) => void;
  readonly signal: AbortSignal;
}

const MEMORY_DIR = '/memory/providers';
const MEMORY_BYTES_MAX = 64 * 1024 * 1024;

export async function openProviders(init: OpenProvidersInit): Promise<Providers> {
  const { dir, kms, caches, policy, routes, events, onRemoved, signal } = init;
  if (dir !== undefined && kms === undefined && !caches)
    throw new RonError('validation', 'without kms, secrets can be stored only if secrets.cache is on');
  const files = await openFiles(init);
  try {
    // Amnesia keeps no secret across starts, so kms has nothing to wrap.
    const secrets = new ProviderSecrets(dir === undefined ? { kms: undefined, caches: true } : { kms, caches });
    const table = new ProviderTable(policy, routes);
    const providers = new Providers({ files, secrets, table, events, onRemoved });
    await reconcileDue(providers, 0, signal);
    return providers;
  } catch (error) {
    await files.close();
    throw error;
  }
}

async function openFiles({ dir: data_dir, env, fs, warn, signal }: OpenProvidersInit): Promise<ProviderFiles> {
  if (data_dir === undefined) {
    const unlock = { kek: sched.randomBytes(KEK_BYTES) };
    return await ProviderFiles.open({ dir: MEMORY_DIR, unlock, fs: new MemoryDisk(MEMORY_BYTES_MAX), warn, signal });
  }
  const dir = join(data_dir, 'providers');
  return await ProviderFiles.open({ dir, unlock: await openUnlock({ dir, env, fs, warn }), fs, warn, signal });
}
