/** The real file system, except that operations on selected files, or reads of selected bytes, fail or wait. */
import { realFileSystem, type DiskRoom, type File, type FileSystem } from '../disk/file-system.ts';

export type DiskStep = 'create' | 'read' | 'write' | 'sync' | 'remove';

interface Fault {
  readonly part: string;
  readonly code: string | undefined;
  readonly steps: readonly DiskStep[];
}

const WRITES: readonly DiskStep[] = ['create', 'write', 'sync'];

/** Bytes of files that cannot be read. */
interface BadSector {
  readonly part: string;
  readonly from: number;
  readonly to: number;
}

export class FaultyDisk implements FileSystem {
  #fault: Fault | undefined;
  #bad: BadSector | undefined;
  #held: (() => void)[] = [];

  /** Operations that wait. */
  get waiting(): number {
    return this.#held.length;
  }

  /** Operations on files whose path contains `part` fail. Default: creations, writes and syncs. */
  fail(part: string, code: string, ...steps: readonly DiskStep[]): void {
    this.#fault = { part, code, steps: steps.length === 0 ? WRITES : steps };
  }

  /** They wait until the fault is removed. */
  hold(part: string, ...steps: readonly DiskStep[]): void {
    this.#fault = { part, code: undefined, steps: steps.length === 0 ? WRITES : steps };
  }

  /** Reads of these bytes of files whose path contains `part` fail with EIO. */
  badSector(part: string, from: number, to: number): void {
    this.#bad = { part, from, to };
  }

  mend(): void {
    this.#fault = undefined;
    this.#bad = undefined;
    for (const go of this.#held.splice(0)) go();
  }

  create = async (path: string): Promise<File> => {
    await this.#check('create', path);
    return this.#wrap(path, await realFileSystem.create(path));
  };
  open = async (path: string, access: 'read' | 'write'): Promise<File> =>
    this.#wrap(path, await realFileSystem.open(path, access));
  list = (dir: string): Promise<string[]> => realFileSystem.list(dir);
  makeDir = (dir: string): Promise<void> => realFileSystem.makeDir(dir);
  rename = (from: string, to: string): Promise<void> => realFileSystem.rename(from, to);
  remove = async (path: string): Promise<void> => {
    await this.#check('remove', path);
    await realFileSystem.remove(path);
  };
  syncDir = (dir: string): Promise<void> => realFileSystem.syncDir(dir);
  lock = (path: string): Disposable | undefined => realFileSystem.lock!(path);
  room = (dir: string): Promise<DiskRoom> => realFileSystem.room!(dir);

  #wrap(path: string, file: File): File {
    return {
      write: async (buffers, position) => {
        await this.#check('write', path);
        await file.write(buffers, position);
      },
      read: async (into, length, position) => {
        await this.#check('read', path);
        this.#checkSector(path, position, length);
        return await file.read(into, length, position);
      },
      sync: async () => {
        await this.#check('sync', path);
        await file.sync();
      },
      truncate: (bytes) => file.truncate(bytes),
      discardStart: async (bytes) => {
        await this.#check('write', path);
        await file.discardStart!(bytes);
      },
      size: () => file.size(),
      close: () => file.close(),
    };
  }

  #checkSector(path: string, position: number, length: number): void {
    const bad = this.#bad;
    if (bad === undefined || !path.includes(bad.part) || position >= bad.to || position + length <= bad.from) return;
    throw Object.assign(new Error('EIO'), { code: 'EIO' });
  }

  async #check(step: DiskStep, path: string): Promise<void> {
    const fault = this.#fault;
    if (fault === undefined || !path.includes(fault.part) || !fault.steps.includes(step)) return;
    if (fault.code !== undefined) throw Object.assign(new Error(fault.code), { code: fault.code });
    await new Promise<void>((resolve) => this.#held.push(resolve));
  }
}
