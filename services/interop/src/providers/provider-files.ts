/**
 * The files of the providers: one sealed file each, and the catalog.
 *
 *     providers/lock              held by this process
 *     providers/catalog           the newest revision of each provider
 *     providers/<name>.sealed     descriptor and secrets
 *
 * Contract: `commit` resolves when the change is on stable storage; after a crash the provider is the old one or the new one,
 * whole. A file that cannot be used closes its provider only: damaged, missing, or older than its catalog entry. The next commit
 * or removal replaces it. A creation or removal that a crash interrupted is undone or completed by `open`.
 * Bound: one small file for each provider. Cancellation: a change whose signal aborts before its write begins is not applied.
 */
import { join } from 'node:path';
import { SealedFile, type Unlock } from '@ron/custody/sealed';
import { isRonError, NEVER, RonError } from '@ron/kernel';
import { rethrowDisk, type FileSystem } from '@ron/log';
import type { Descriptor } from '@ron/proto';
import { Catalog } from './catalog.ts';
import { unknownDescriptor } from './descriptor.ts';
import { EMPTY_DOCUMENT, storedOf, type ProviderDocument, type StoredProvider } from './stored-provider.ts';

/** A provider whose file cannot be used. */
export interface ClosedFile {
  /** The last known one. */
  readonly descriptor: Descriptor;
  /** A fixed text. */
  readonly problem: string;
  /** For the operator: may name paths. */
  readonly detail: string | undefined;
}

export type FileState = { readonly stored: StoredProvider } | { readonly closed: ClosedFile };
/** Seals and opens parts of one file. */
export type PartSealer = Pick<SealedFile<ProviderDocument>, 'seal' | 'unseal'>;
type Change = Pick<StoredProvider, 'descriptor' | 'secrets'>;

export interface ProviderFilesInit {
  readonly dir: string;
  readonly unlock: Unlock;
  readonly fs: FileSystem;
  readonly warn: (what: string) => void;
  readonly signal: AbortSignal;
}

const SUFFIX = '.sealed';

export class ProviderFiles implements AsyncDisposable {
  readonly #init: ProviderFilesInit;
  /** Without locks: the directory has one. */
  readonly #fs: FileSystem;
  readonly #lock: Disposable | undefined;
  readonly #catalog: Catalog;
  readonly #open = new Map<string, SealedFile<ProviderDocument>>();
  readonly #states = new Map<string, FileState>();

  private constructor(init: ProviderFilesInit, fs: FileSystem, lock: Disposable | undefined, catalog: Catalog) {
    this.#init = init;
    this.#fs = fs;
    this.#lock = lock;
    this.#catalog = catalog;
  }

  static async open(init: ProviderFilesInit): Promise<ProviderFiles> {
    const { dir, unlock, warn, signal } = init;
    await init.fs.makeDir(dir).catch(rethrowDisk);
    const lock = init.fs.lock?.(join(dir, 'lock'));
    if (init.fs.lock !== undefined && lock === undefined)
      throw new RonError('conflict', `${dir} is in use by another process`);
    try {
      const fs = withoutLock(init.fs);
      const catalog = await Catalog.open({ path: join(dir, 'catalog'), unlock, fs, warn, signal });
      const files = new ProviderFiles(init, fs, lock, catalog);
      await files.#load();
      return files;
    } catch (error) {
      lock?.[Symbol.dispose]();
      throw error;
    }
  }

  get states(): ReadonlyMap<string, FileState> {
    return this.#states;
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

  /** Opens the file of a provider; creates it, or replaces one that cannot be used. Changes no provider until `commit`. */
  async sealer(name: string, signal: AbortSignal): Promise<PartSealer> {
    const open = this.#open.get(name);
    if (open !== undefined) return open;
    await this.#removeFile(name);
    const file = await this.#openFile(name, signal);
    this.#open.set(name, file);
    return file;
  }

  /** Replaces a provider. `sealer` was called before. */
  async commit(name: string, change: Change, signal: AbortSignal): Promise<void> {
    const file = this.#open.get(name)!;
    const revision = this.#revision(name) + 1;
    const newest = change.secrets[0]?.version ?? 0;
    const secret_version = Math.max(this.nextSecretVersion(name) - 1, newest);
    const stored: StoredProvider = { format: 1, revision, secret_version, ...change };
    await file.replace(stored, signal);
    this.#states.set(name, { stored });
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
      throw error;
    }
    this.#states.delete(name);
    await this.discard(name);
  }

  /** Removes the file of a provider that does not exist any more, or not yet. Never rejects: the next start tries again. */
  async discard(name: string): Promise<void> {
    if (this.#states.has(name)) return;
    const file = this.#open.get(name);
    this.#open.delete(name);
    try {
      await file?.close();
      await this.#removeFile(name);
    } catch {
      this.#init.warn(`failed to remove ${this.#pathOf(name)}: it is removed at the next start`);
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#open.values()].map((file) => file.close()));
    await this.#catalog.close();
    this.#lock?.[Symbol.dispose]();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #load(): Promise<void> {
    const names = (await this.#fs.list(this.#init.dir).catch(rethrowDisk))
      .filter((name) => name.endsWith(SUFFIX))
      .map((name) => name.slice(0, -SUFFIX.length))
      .toSorted();
    for (const name of names) await this.#loadOne(name);
    for (const { name } of this.#catalog.listed()) {
      if (!this.#states.has(name)) this.#closeState(name, 'its file is missing', undefined);
    }
    for (const state of this.#states.values()) {
      const isNewer =
        'stored' in state && state.stored.revision > (this.#catalog.get(state.stored.descriptor.name)?.revision ?? 0);
      if (isNewer) await this.#record(state.stored);
    }
  }

  async #loadOne(name: string): Promise<void> {
    const { signal } = this.#init;
    try {
      const file = await this.#openFile(name, signal);
      this.#open.set(name, file);
      const stored = storedOf(name, file.value);
      const entry = this.#catalog.get(name);
      const isRemoved =
        stored === undefined || (stored.revision <= (entry?.revision ?? 0) && entry?.descriptor === undefined);
      if (isRemoved) return await this.discard(name);
      this.#states.set(name, { stored });
      if (stored.revision >= (entry?.revision ?? 0)) return;
      await file.close();
      this.#open.delete(name);
      this.#closeState(
        name,
        'its file is older than its last change',
        `${file.path}: restore the newest copy, or set the provider again`,
      );
    } catch (error) {
      signal.throwIfAborted();
      await this.#open.get(name)?.close();
      this.#open.delete(name);
      this.#closeState(
        name,
        'its file is damaged or cannot be read',
        isRonError(error) ? error.message : 'unknown error',
      );
    }
  }

  #closeState(name: string, problem: string, detail: string | undefined): void {
    const descriptor = this.#catalog.get(name)?.descriptor ?? unknownDescriptor(name);
    this.#states.set(name, { closed: { descriptor, problem, detail } });
  }

  #revision(name: string): number {
    const state = this.#states.get(name);
    const stored = state !== undefined && 'stored' in state ? state.stored.revision : 0;
    return Math.max(stored, this.#catalog.get(name)?.revision ?? 0);
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

  #openFile(name: string, signal: AbortSignal): Promise<SealedFile<ProviderDocument>> {
    return SealedFile.open<ProviderDocument>({
      path: this.#pathOf(name),
      unlock: this.#init.unlock,
      purpose: `interop-provider/${name}`,
      initial: EMPTY_DOCUMENT,
      fs: this.#fs,
      signal,
    });
  }

  async #removeFile(name: string): Promise<void> {
    try {
      await this.#fs.remove(this.#pathOf(name));
      await this.#fs.syncDir(this.#init.dir);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') rethrowDisk(error);
    }
  }

  #pathOf(name: string): string {
    return join(this.#init.dir, `${name}${SUFFIX}`);
  }
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
