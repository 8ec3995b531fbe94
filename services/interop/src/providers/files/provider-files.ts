/**
 * The files of the providers: one sealed file each, and the catalog.
 *
 *     providers/catalog           the newest revision of each provider
 *     providers/<name>.sealed     descriptor and secrets
 *
 * Contract: `commit` and `remove` resolve when the change is on stable storage; after a crash the provider is the old one or the
 * new one, whole. If the disk fails, they reject and the process keeps the old state, but after a failed sync the state on the disk
 * is unknown: the next start may find the change. The error says so, and a repeated change decides it. A file that cannot be used
 * closes its provider only: damaged, missing, or older than its catalog entry. The next completed commit or removal replaces it.
 * A creation or removal that a crash interrupted is undone or completed by `open`.
 * Bound: one small file for each provider. Cancellation: a change whose signal aborts before its write begins is not applied.
 */
import { join } from 'node:path';
import type { SealedFile, Unlock } from '@ron/custody/sealed';
import { isRonError, NEVER, RonError } from '@ron/kernel';
import { rethrowDisk, type FileSystem } from '@ron/log';
import { Catalog } from './catalog.ts';
import { loadProviders, type FileState, type LoadedProviders } from './load-providers.ts';
import { ProviderDir, type ProviderFile } from './provider-dir.ts';
import type { ProviderDocument, StoredProvider } from './stored-provider.ts';

export type { ClosedFile, FileState } from './load-providers.ts';

/** Seals and opens parts of one file. */
export type PartSealer = Pick<SealedFile<ProviderDocument>, 'seal' | 'unseal'>;
type Change = Pick<StoredProvider, 'descriptor' | 'secrets'>;

export interface ProviderFilesInit {
  readonly dir: string;
  readonly unlock: Unlock;
  readonly fs: FileSystem;
  readonly warn: (message: string) => void;
  readonly signal: AbortSignal;
}

interface OpenedFiles {
  readonly init: ProviderFilesInit;
  readonly dir: ProviderDir;
  readonly catalog: Catalog;
  readonly loaded: LoadedProviders;
}

export class ProviderFiles implements AsyncDisposable {
  readonly #init: ProviderFilesInit;
  readonly #dir: ProviderDir;
  readonly #catalog: Catalog;
  readonly #open: Map<string, ProviderFile>;
  readonly #states: Map<string, FileState>;
  /** The revisions of removals that were refused: the disk may hold them, so the next change has a higher one. */
  readonly #refused = new Map<string, number>();

  private constructor({ init, dir, catalog, loaded }: OpenedFiles) {
    this.#init = init;
    this.#dir = dir;
    this.#catalog = catalog;
    this.#open = loaded.files;
    this.#states = loaded.states;
  }

  static async open(init: ProviderFilesInit): Promise<ProviderFiles> {
    const { unlock, warn, signal } = init;
    await init.fs.makeDir(init.dir).catch(rethrowDisk);
    // The lock of the data directory covers all files.
    const fs = withoutLock(init.fs);
    const dir = new ProviderDir({ dir: init.dir, unlock, fs, warn });
    const names = await dir.names();
    const catalog = await Catalog.open({ path: join(init.dir, 'catalog'), unlock, fs, names, signal });
    const loaded = await loadProviders({ dir, catalog, signal });
    const files = new ProviderFiles({ init, dir, catalog, loaded });
    await files.#recordNewer();
    return files;
  }

  get states(): ReadonlyMap<string, FileState> {
    return this.#states;
  }

  /** Providers whose file may be an old copy, because the catalog was lost. Sorted. */
  get unconfirmed(): readonly string[] {
    const { unconfirmed } = this.#catalog;
    return unconfirmed.size === 0 ? [] : [...unconfirmed].filter((name) => this.#states.has(name)).toSorted();
  }

  /** An operator has set or rotated the provider. Never rejects: the next start reports it again if the write fails. */
  async confirm(name: string): Promise<void> {
    try {
      await this.#catalog.confirm(name, NEVER);
    } catch {
      this.#init.warn(`failed to record in the catalog that ${name} was set: it is reported again at the next start`);
    }
  }

  /** The version of the next secret. */
  nextSecretVersion(name: string): number {
    const state = this.#states.get(name);
    const stored = state !== undefined && 'stored' in state ? state.stored.secret_version : 0;
    return Math.max(stored, this.#catalog.get(name)?.secret_version ?? 0) + 1;
  }

  /** The file of a provider, if it is open. */
  sealerNow(name: string): PartSealer | undefined {
    return this.#open.get(name);
  }

  /** The file of a provider; a new one if it has none that can be used. Changes nothing on the disk: `commit` does. */
  async sealer(name: string, signal: AbortSignal): Promise<PartSealer> {
    const open = this.#open.get(name);
    if (open !== undefined) return open;
    const file = await this.#dir.create(name, signal);
    this.#open.set(name, file);
    return file;
  }

  /** Replaces a provider. `sealer` was called before. */
  async commit(name: string, change: Change, signal: AbortSignal): Promise<void> {
    const file = this.#open.get(name)!;
    const revision = this.#revision(name) + 1;
    const newest = change.secrets[0]?.version ?? 0;
    const secret_version = Math.max(this.nextSecretVersion(name) - 1, newest);
    const incarnation = this.#incarnationOf(name) ?? this.#catalog.nextIncarnation();
    const stored: StoredProvider = { format: 1, revision, secret_version, incarnation, ...change };
    await file.replace(stored, signal).catch(rethrowUndecided);
    this.#states.set(name, { stored });
    this.#refused.delete(name);
    await this.#record(stored);
  }

  async remove(name: string, signal: AbortSignal): Promise<void> {
    const entry = { name, revision: this.#revision(name) + 1, secret_version: this.nextSecretVersion(name) - 1 };
    // First, so that a crash cannot leave a missing file of a provider that is still listed.
    const before = this.#catalog.get(name);
    try {
      await this.#catalog.set(entry, signal);
    } catch (error) {
      this.#catalog.restore(name, before);
      this.#refused.set(name, entry.revision);
      rethrowUndecided(error);
    }
    this.#states.delete(name);
    this.#refused.delete(name);
    await this.discard(name);
  }

  /** Removes the file of a provider that does not exist any more, or not yet. Never rejects. */
  async discard(name: string): Promise<void> {
    if (this.#states.has(name)) return;
    const file = this.#open.get(name);
    this.#open.delete(name);
    await this.#dir.discard(name, file);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#open.values()].map((file) => file.close()));
    await this.#catalog.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Changes that a crash kept from the catalog. */
  async #recordNewer(): Promise<void> {
    for (const state of this.#states.values()) {
      const isNewer =
        'stored' in state && state.stored.revision > (this.#catalog.get(state.stored.descriptor.name)?.revision ?? 0);
      if (isNewer) await this.#record(state.stored);
    }
  }

  #revision(name: string): number {
    const state = this.#states.get(name);
    const stored = state !== undefined && 'stored' in state ? state.stored.revision : 0;
    return Math.max(stored, this.#catalog.get(name)?.revision ?? 0, this.#refused.get(name) ?? 0);
  }

  /** Undefined for a provider that is created, also in place of a lost one. */
  #incarnationOf(name: string): number | undefined {
    const state = this.#states.get(name);
    return state !== undefined && 'stored' in state ? state.stored.incarnation : undefined;
  }

  /** The change is durable already: without its catalog entry, only the detection of an older copy is lost. */
  async #record({ descriptor, revision, secret_version }: StoredProvider): Promise<void> {
    const entry = { name: descriptor.name, revision, secret_version, descriptor };
    try {
      await this.#catalog.set(entry, NEVER);
    } catch {
      this.#init.warn('failed to write the catalog of providers: an old copy of a provider file would not be detected');
    }
  }
}

/** After a failed sync the disk may hold the change or not. */
function rethrowUndecided(error: unknown): never {
  if (!isRonError(error, 'not_ready') && !isRonError(error, 'storage_full')) throw error;
  const { code, message, retry_after_ms } = error;
  const detail = `${message}: the change was refused, but it may take effect at the next start: repeat it until it succeeds`;
  throw new RonError(code, detail, { cause: error, ...(retry_after_ms !== undefined && { retry_after_ms }) });
}

function withoutLock(fs: FileSystem): FileSystem {
  return {
    create: (path) => fs.create(path),
    open: (path, access) => fs.open(path, access),
    list: (dir) => fs.list(dir),
    makeDir: (dir) => fs.makeDir(dir),
    rename: (from, to) => fs.rename(from, to),
    remove: (path) => fs.remove(path),
    syncDir: (dir) => fs.syncDir(dir),
  };
}
