/** The real file system, except that operations on selected files fail or wait. */
import { realFileSystem, type File, type FileSystem } from '../disk/file-system.ts';

export class FaultyDisk implements FileSystem {
  #fault: { readonly part: string; readonly code: string | undefined } | undefined;
  #held: (() => void)[] = [];

  /** Writes to files whose path contains `part` fail. */
  fail(part: string, code: string): void {
    this.#fault = { part, code };
  }

  /** Writes wait until the fault is removed. */
  hold(part: string): void {
    this.#fault = { part, code: undefined };
  }

  mend(): void {
    this.#fault = undefined;
    for (const go of this.#held.splice(0)) go();
  }

  create = async (path: string): Promise<File> => {
    await this.#check(path);
    return this.#wrap(path, await realFileSystem.create(path));
  };
  open = async (path: string, access: 'read' | 'write'): Promise<File> =>
    this.#wrap(path, await realFileSystem.open(path, access));
  list = (dir: string): Promise<string[]> => realFileSystem.list(dir);
  makeDir = (dir: string): Promise<void> => realFileSystem.makeDir(dir);
  rename = (from: string, to: string): Promise<void> => realFileSystem.rename(from, to);
  remove = (path: string): Promise<void> => realFileSystem.remove(path);
  syncDir = (dir: string): Promise<void> => realFileSystem.syncDir(dir);
  lock = (path: string): Disposable | undefined => realFileSystem.lock!(path);

  #wrap(path: string, file: File): File {
    return {
      write: async (buffers, position) => {
        await this.#check(path);
        await file.write(buffers, position);
      },
      read: (into, length, position) => file.read(into, length, position),
      sync: async () => {
        await this.#check(path);
        await file.sync();
      },
      truncate: (bytes) => file.truncate(bytes),
      discardStart: async (bytes) => {
        await this.#check(path);
        await file.discardStart!(bytes);
      },
      size: () => file.size(),
      close: () => file.close(),
    };
  }

  async #check(path: string): Promise<void> {
    const fault = this.#fault;
    if (fault === undefined || !path.includes(fault.part)) return;
    if (fault.code !== undefined) throw Object.assign(new Error(fault.code), { code: fault.code });
    await new Promise<void>((resolve) => this.#held.push(resolve));
  }
}
