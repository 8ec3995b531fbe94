/**
 * The list of volumes that this node has had, in a file (`volumes_file`).
 *
 * Contract: a volume that was open once stays listed until it is removed from the set, so that a start without it reports it
 * instead of serving fewer objects. A file that cannot be read fails the start; one that cannot be written
 * is reported by `problem` and written again at the next change. Without a path nothing is persisted.
 * Bound: `VOLUMES_MAX` volumes; further ones are dropped. One write at a time.
 */
import { dirname } from 'node:path';
import { RonError } from '@ron/kernel';
import { readWhole, realFileSystem, writeWhole, type FileSystem } from '@ron/log';
import { formatKnownVolumes, KNOWN_VOLUMES_BYTES_MAX, parseKnownVolumes, type KnownVolume } from '@ron/proto';

const VOLUMES_MAX = 256;

export class KnownVolumes {
  readonly #path: string | undefined;
  readonly #fs: FileSystem;
  #volumes: readonly KnownVolume[];
  /** The content of the file. */
  #written: string;
  #writing: Promise<void> = Promise.resolve();
  #problem: string | undefined;

  private constructor(path: string | undefined, fs: FileSystem, text: string, volumes: readonly KnownVolume[]) {
    this.#path = path;
    this.#fs = fs;
    this.#written = text;
    this.#volumes = volumes;
  }

  static async open(path: string | undefined, fs: FileSystem = realFileSystem): Promise<KnownVolumes> {
    if (path === undefined) return new KnownVolumes(undefined, fs, '', []);
    const bytes = await readWhole(fs, path, KNOWN_VOLUMES_BYTES_MAX);
    if (bytes === undefined) return new KnownVolumes(path, fs, '', []);
    const text = bytes.toString('utf8');
    const volumes = parseKnownVolumes(text);
    if (volumes === undefined) {
      throw new RonError('not_ready', `${path} is damaged: delete it and start with all directories in data_dirs`);
    }
    return new KnownVolumes(path, fs, text, volumes);
  }

  get volumes(): readonly KnownVolume[] {
    return this.#volumes;
  }

  /** Why the file is not up to date. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Adds volumes, or updates their directories. */
  remember(volumes: readonly KnownVolume[]): Promise<void> {
    const ids = new Set(volumes.map(({ id }) => id));
    return this.#change([...this.#volumes.filter(({ id }) => !ids.has(id)), ...volumes]);
  }

  forget(id: string): Promise<void> {
    return this.#change(this.#volumes.filter((volume) => volume.id !== id));
  }

  /** Takes effect at once; resolves once it is written or has failed. */
  #change(volumes: readonly KnownVolume[]): Promise<void> {
    // In a fixed order, so that an unchanged list is not written again.
    this.#volumes = volumes.slice(-VOLUMES_MAX).toSorted((a, b) => (a.id < b.id ? -1 : 1));
    this.#writing = this.#writing.then(() => this.#write());
    return this.#writing;
  }

  async #write(): Promise<void> {
    const text = formatKnownVolumes(this.#volumes);
    if (this.#path === undefined || text === this.#written) return;
    try {
      await this.#fs.makeDir(dirname(this.#path));
      await writeWhole(this.#fs, this.#path, Buffer.from(text, 'utf8'));
      this.#written = text;
      this.#problem = undefined;
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.#problem = `cannot write ${this.#path} (${why}): a start without data_dirs may miss volumes`;
    }
  }
}
