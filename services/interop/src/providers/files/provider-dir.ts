/**
 * The directory of the provider files: one sealed file for each provider.
 *
 * Contract: `create` changes nothing on the disk: the first write of the file creates it, or replaces the one that cannot be used,
 * whole. `names` removes the temporary files of writes that a crash interrupted.
 * Bound: one small file for each provider. Cancellation: `open` and `create` by their signal.
 */
import { join } from 'node:path';
import { SealedFile, type SealedFileInit, type Unlock } from '@ron/custody/sealed';
import { removeLeftOver, rethrowDisk, type FileSystem } from '@ron/log';
import { EMPTY_DOCUMENT, type ProviderDocument } from './stored-provider.ts';

export type ProviderFile = SealedFile<ProviderDocument>;

export interface ProviderDirInit {
  readonly dir: string;
  readonly unlock: Unlock;
  readonly fs: FileSystem;
  readonly warn: (message: string) => void;
}

const SUFFIX = '.sealed';
const LEFT_OVER = '.tmp';

export class ProviderDir {
  readonly #init: ProviderDirInit;

  constructor(init: ProviderDirInit) {
    this.#init = init;
  }

  /** The providers that have a file, sorted. */
  async names(): Promise<readonly string[]> {
    const files = await this.#init.fs.list(this.#init.dir).catch(rethrowDisk);
    const sealed = files.filter((name) => name.endsWith(SUFFIX));
    const left = files.filter((name) => name.endsWith(`${SUFFIX}${LEFT_OVER}`));
    for (const name of left) await this.#removeLeftOver(name.slice(0, -LEFT_OVER.length));
    return sealed.map((name) => name.slice(0, -SUFFIX.length)).toSorted();
  }

  open(name: string, signal: AbortSignal): Promise<ProviderFile> {
    return SealedFile.open(this.#fileInit(name, signal));
  }

  create(name: string, signal: AbortSignal): Promise<ProviderFile> {
    return SealedFile.create(this.#fileInit(name, signal));
  }

  /** Removes the file of a provider that does not exist any more, or not yet. Never rejects. */
  async discard(name: string, file: ProviderFile | undefined): Promise<void> {
    try {
      await file?.close();
      await this.#remove(name);
    } catch {
      this.#init.warn(
        `failed to remove ${this.#pathOf(name)}: the next start removes it, unless it holds a change that was refused`,
      );
    }
  }

  #fileInit(name: string, signal: AbortSignal): SealedFileInit<ProviderDocument> {
    const { unlock, fs } = this.#init;
    const purpose = `interop-provider/${name}`;
    return { path: this.#pathOf(name), unlock, purpose, initial: EMPTY_DOCUMENT, fs, signal };
  }

  async #remove(name: string): Promise<void> {
    const { fs, dir } = this.#init;
    try {
      await fs.remove(this.#pathOf(name));
      await fs.syncDir(dir);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }

  /** On a read-only disk it stays. */
  async #removeLeftOver(file: string): Promise<void> {
    const { fs, dir } = this.#init;
    await removeLeftOver(fs, join(dir, file)).catch(() => undefined);
  }

  #pathOf(name: string): string {
    return join(this.#init.dir, `${name}${SUFFIX}`);
  }
}
