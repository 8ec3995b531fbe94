/**
 * A file system that can be frozen, so that possible evidence is preserved.
 *
 * Contract: while it is frozen nothing is written, created, renamed or removed; attempts are refused with the reason. Reads
 * and locks still work. A truncation that recovery requests while frozen is applied when the disk is thawed.
 * Bound: a few deferred truncations.
 */
import type { RonError } from '@ron/kernel';
import type { File, FileSystem } from '@ron/log';

export class FreezableDisk implements FileSystem {
  readonly #disk: FileSystem;
  #refusal: ((path: string) => RonError) | undefined;
  readonly #cuts: { readonly path: string; readonly bytes: number }[] = [];
  readonly lock?: NonNullable<FileSystem['lock']>;
  readonly room?: NonNullable<FileSystem['room']>;

  constructor(disk: FileSystem) {
    this.#disk = disk;
    if (disk.lock !== undefined) this.lock = (path) => disk.lock!(path);
    if (disk.room !== undefined) this.room = (dir) => disk.room!(dir);
  }

  get isFrozen(): boolean {
    return this.#refusal !== undefined;
  }

  freeze(refusal: (path: string) => RonError): void {
    this.#refusal = refusal;
  }

  async thaw(): Promise<void> {
    this.#refusal = undefined;
    for (const { path, bytes } of this.#cuts.splice(0)) {
      const file = await this.#disk.open(path, 'write');
      try {
        await file.truncate(bytes);
        await file.sync();
      } finally {
        await file.close();
      }
    }
  }

  create(path: string): Promise<File> {
    return this.#refused(path) ?? this.#wrapped(path, this.#disk.create(path));
  }

  open(path: string, access: 'read' | 'write'): Promise<File> {
    return this.#wrapped(path, this.#disk.open(path, access));
  }

  list(dir: string): Promise<string[]> {
    return this.#disk.list(dir);
  }

  async makeDir(dir: string): Promise<void> {
    if (this.#refusal === undefined) await this.#disk.makeDir(dir);
  }

  rename(from: string, to: string): Promise<void> {
    return this.#refused(to) ?? this.#disk.rename(from, to);
  }

  /** Leftover files are removed at every start; while frozen they stay. */
  async remove(path: string): Promise<void> {
    if (this.#refusal === undefined) await this.#disk.remove(path);
  }

  async syncDir(dir: string): Promise<void> {
    if (this.#refusal === undefined) await this.#disk.syncDir(dir);
  }

  async #wrapped(path: string, opening: Promise<File>): Promise<File> {
    const file = await opening;
    return {
      write: (buffers, position) => this.#refused(path) ?? file.write(buffers, position),
      read: (into, length, position) => file.read(into, length, position),
      ...(file.readNow === undefined
        ? {}
        : { readNow: (into: Uint8Array, length: number, position: number) => file.readNow!(into, length, position) }),
      sync: () => (this.#refusal === undefined ? file.sync() : Promise.resolve()),
      truncate: async (bytes) => {
        if (this.#refusal === undefined) await file.truncate(bytes);
        else this.#cuts.push({ path, bytes });
      },
      ...(file.discardStart === undefined
        ? {}
        : { discardStart: (bytes: number) => this.#refused(path) ?? file.discardStart!(bytes) }),
      size: () => file.size(),
      close: () => file.close(),
    };
  }

  #refused(path: string): Promise<never> | undefined {
    return this.#refusal === undefined ? undefined : Promise.reject(this.#refusal(path));
  }
}
