/**
 * The catalog: the newest revision of each provider, in a file of its own, so that an old copy of a provider's file is detected.
 *
 * Contract: also holds the descriptors, to show a provider whose file is damaged, and the removed names, so that the file of a
 * removed provider does not come back and no version of a secret is used twice. No incarnation is given out twice: it is at least
 * the wall clock, so a lost catalog does not matter as long as the clock was not set back.
 * A damaged catalog is set aside as `catalog.damaged`, or under the next free name. It, and one that is missing beside provider
 * files, is rebuilt from those files: none of them can be compared with its newest revision, so all are unconfirmed, across
 * restarts, until an operator sets or rotates them. A restore of the whole directory is not detected.
 * A catalog that may be intact is never rebuilt: `open` throws `not_ready` if the disk does not give it, and if its key box does
 * not open, because then the key may be wrong.
 * Bound: `INTEROP_LIMITS.providers` providers and `REMOVED_MAX` removed names; the oldest of those are forgotten. `SET_ASIDE_MAX`
 * damaged catalogs are kept; one more is refused with `not_ready`.
 */
import { dirname, join } from 'node:path';
import { isDamaged, KEK_VARIABLE, SealedFile, type Unlock } from '@ron/custody/sealed';
import { isRonError, RonError, sched } from '@ron/kernel';
import { rethrowDisk, type FileSystem } from '@ron/log';
import type { Descriptor } from '@ron/proto';

interface CatalogEntry {
  readonly name: string;
  readonly revision: number;
  readonly secret_version: number;
  /** Absent for a removed provider. */
  readonly descriptor?: Descriptor;
}

interface Stored {
  readonly format: 1;
  /** The highest incarnation that is known. */
  readonly incarnation: number;
  readonly entries: readonly CatalogEntry[];
  /** Providers whose files lay beside a catalog that was lost. Default none. */
  readonly unconfirmed?: readonly string[];
}

export interface CatalogInit {
  readonly path: string;
  readonly unlock: Unlock;
  readonly fs: FileSystem;
  /** The providers that have a file. */
  readonly names: readonly string[];
  readonly signal: AbortSignal;
}

const PURPOSE = 'interop-catalog';
const REMOVED_MAX = 1024;
const SET_ASIDE_MAX = 8;

export class Catalog implements AsyncDisposable {
  readonly #file: SealedFile<Stored>;
  /** Ahead of the file after a failed write; the next write stores all of it. */
  readonly #entries: Map<string, CatalogEntry>;
  readonly #unconfirmed: Set<string>;
  #incarnation: number;

  private constructor(file: SealedFile<Stored>) {
    this.#file = file;
    this.#incarnation = file.value.incarnation;
    this.#entries = new Map(file.value.entries.map((entry) => [entry.name, entry]));
    this.#unconfirmed = new Set(file.value.unconfirmed);
  }

  static async open({ path, unlock, fs, names, signal }: CatalogInit): Promise<Catalog> {
    // Of a new file: the catalog is created before the first provider.
    const initial: Stored = { format: 1, incarnation: 0, entries: [], unconfirmed: names };
    const init = { path, unlock, purpose: PURPOSE, initial, fs, signal };
    try {
      return new Catalog(await SealedFile.open(init));
    } catch (error) {
      signal.throwIfAborted();
      if (!isDamaged(error)) throw unusable(path, error);
      await setAside(fs, path);
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

  /** The incarnation of a provider that is created. */
  nextIncarnation(): number {
    return (this.#incarnation = Math.max(this.#incarnation + 1, sched.wall_ms()));
  }

  /** An incarnation of a file, which may be newer than the catalog. */
  noteIncarnation(incarnation: number): void {
    this.#incarnation = Math.max(this.#incarnation, incarnation);
  }

  /** Resolves when the entry is durable. If the write fails, the entry is still known and part of the next write. */
  async set(entry: CatalogEntry, signal: AbortSignal): Promise<void> {
    // The newest last: the oldest removed names are forgotten first.
    this.#entries.delete(entry.name);
    this.#entries.set(entry.name, entry);
    this.#forgetRemoved();
    await this.#write(signal);
  }

  /** Providers whose file may be an old copy. */
  get unconfirmed(): ReadonlySet<string> {
    return this.#unconfirmed;
  }

  /** An operator has set or rotated the provider. Resolves when that is durable. */
  async confirm(name: string, signal: AbortSignal): Promise<void> {
    if (this.#unconfirmed.delete(name)) await this.#write(signal);
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

  async #write(signal: AbortSignal): Promise<void> {
    const [entries, unconfirmed] = [[...this.#entries.values()], [...this.#unconfirmed]];
    await this.#file.replace({ format: 1, incarnation: this.#incarnation, entries, unconfirmed }, signal);
  }

  #forgetRemoved(): void {
    const removed = [...this.#entries.values()].filter(({ descriptor }) => descriptor === undefined);
    for (const { name } of removed.slice(0, Math.max(0, removed.length - REMOVED_MAX))) this.#entries.delete(name);
  }
}

/** Renames a damaged catalog, and replaces none that was set aside before. */
async function setAside(fs: FileSystem, path: string): Promise<void> {
  const names = await fs.list(dirname(path)).catch(rethrowDisk);
  const candidates = Array.from({ length: SET_ASIDE_MAX }, (_, at) => `catalog.damaged${at === 0 ? '' : `.${at + 1}`}`);
  const free = candidates.find((name) => !names.includes(name));
  if (free === undefined)
    throw new RonError(
      'not_ready',
      `${path} is damaged, and ${SET_ASIDE_MAX} damaged catalogs are kept already: remove the files catalog.damaged*`,
    );
  await fs.rename(path, join(dirname(path), free)).catch(rethrowDisk);
}

/** States why a catalog that may be intact cannot be used. */
function unusable(path: string, error: unknown): unknown {
  if (!isRonError(error, 'not_ready')) return error;
  const { message, op } = error;
  return new RonError(
    'not_ready',
    op === 'sealed_file'
      ? `the catalog of providers does not open with this key: check ${KEK_VARIABLE}; ${message}`
      : `the catalog of providers cannot be read: ${path}: ${message}`,
    { cause: error },
  );
}
