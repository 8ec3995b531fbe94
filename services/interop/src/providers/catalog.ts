/**
 * The catalog: the newest revision of each provider, in a file of its own, so that an old copy of a provider's file is detected.
 *
 * Contract: also holds the descriptors, to show a provider whose file is damaged, and the removed names, so that the file of a
 * removed provider does not come back and no version of a secret is used twice. A damaged catalog is set aside as
 * `catalog.damaged` and rebuilt from the provider files. A restore of the whole directory is not detected.
 * Bound: `INTEROP_LIMITS.providers` providers and `REMOVED_MAX` removed names; the oldest of those are forgotten.
 */
import { SealedFile, type Unlock } from '@ron/custody/sealed';
import { isRonError } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import type { Descriptor } from '@ron/proto';

export interface CatalogEntry {
  readonly name: string;
  readonly revision: number;
  readonly secret_version: number;
  /** Absent for a removed provider. */
  readonly descriptor?: Descriptor;
}

interface Stored {
  readonly format: 1;
  readonly entries: readonly CatalogEntry[];
}

export interface CatalogInit {
  readonly path: string;
  readonly unlock: Unlock;
  readonly fs: FileSystem;
  readonly warn: (what: string) => void;
  readonly signal: AbortSignal;
}

const PURPOSE = 'interop-catalog';
const REMOVED_MAX = 1024;

export class Catalog implements AsyncDisposable {
  readonly #file: SealedFile<Stored>;
  /** Ahead of the file after a failed write; the next write stores all of it. */
  readonly #entries: Map<string, CatalogEntry>;

  private constructor(file: SealedFile<Stored>) {
    this.#file = file;
    this.#entries = new Map(file.value.entries.map((entry) => [entry.name, entry]));
  }

  static async open({ path, unlock, fs, warn, signal }: CatalogInit): Promise<Catalog> {
    const init = { path, unlock, purpose: PURPOSE, initial: { format: 1, entries: [] } as Stored, fs, signal };
    try {
      return new Catalog(await SealedFile.open(init));
    } catch (error) {
      if (!isRonError(error, 'not_ready')) throw error;
      warn(`${error.message}; it is rebuilt, and old copies of provider files are not detected at this start`);
      await fs.rename(path, `${path}.damaged`);
      return new Catalog(await SealedFile.open(init));
    }
  }

  get(name: string): CatalogEntry | undefined {
    return this.#entries.get(name);
  }

  /** Providers that were not removed. */
  listed(): CatalogEntry[] {
    return [...this.#entries.values()].filter(({ descriptor }) => descriptor !== undefined);
  }

  /** Resolves when the entry is durable. If the write fails, the entry is still known and part of the next write. */
  async set(entry: CatalogEntry, signal: AbortSignal): Promise<void> {
    // The newest last: the oldest removed names are forgotten first.
    this.#entries.delete(entry.name);
    this.#entries.set(entry.name, entry);
    this.#forgetRemoved();
    await this.#file.replace({ format: 1, entries: [...this.#entries.values()] }, signal);
  }

  /** After a failed `set` of a change that did not happen. */
  restore(name: string, before: CatalogEntry | undefined): void {
    if (before === undefined) this.#entries.delete(name);
    else this.#entries.set(name, before);
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #forgetRemoved(): void {
    const removed = [...this.#entries.values()].filter(({ descriptor }) => descriptor === undefined);
    for (const { name } of removed.slice(0, Math.max(0, removed.length - REMOVED_MAX))) this.#entries.delete(name);
  }
}
