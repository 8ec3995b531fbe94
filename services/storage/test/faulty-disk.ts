/** A file system that hangs or fails on demand, to stand for a disk that does. */
import type { LocalVolumeInit } from '@ron/cas';
import { realFileSystem, type File, type FileSystem } from '@ron/log';

export type DiskStep = 'create' | 'read' | 'write' | 'sync';

export class FaultyDisk {
  readonly #held = new Map<DiskStep, PromiseWithResolvers<void>>();
  readonly #failing = new Map<DiskStep, string>();
  /** Waiting calls, by operation. */
  readonly waiting: Record<DiskStep, number> = { create: 0, read: 0, write: 0, sync: 0 };

  /** From now on these calls wait. */
  hold(step: DiskStep): void {
    this.#held.set(step, Promise.withResolvers());
  }

  /** Lets them go on. */
  release(step: DiskStep): void {
    this.#held.get(step)?.resolve();
    this.#held.delete(step);
  }

  /** From now on these calls fail with an error code of the operating system. */
  fail(code: string, ...steps: readonly DiskStep[]): void {
    for (const step of steps) this.#failing.set(step, code);
  }

  /** Ends all faults; waiting calls continue. */
  mend(): void {
    this.#failing.clear();
    for (const step of this.#held.keys()) this.release(step);
  }

  get fs(): LocalVolumeInit['fs'] {
    const fs: FileSystem = Object.create(realFileSystem);
    return Object.assign(fs, {
      create: async (path: string) => {
        await this.#pass('create');
        return this.#file(await realFileSystem.create(path));
      },
      open: async (path: string, access: 'read' | 'write') => this.#file(await realFileSystem.open(path, access)),
    });
  }

  async #pass(step: DiskStep): Promise<void> {
    this.waiting[step] += 1;
    await this.#held.get(step)?.promise;
    this.waiting[step] -= 1;
    const code = this.#failing.get(step);
    if (code !== undefined) throw Object.assign(new Error(`${code}: ${step}`), { code });
  }

  #file(file: File): File {
    return {
      write: async (buffers, position) => {
        await this.#pass('write');
        await file.write(buffers, position);
      },
      read: async (into, length, position) => {
        await this.#pass('read');
        return await file.read(into, length, position);
      },
      sync: async () => {
        await this.#pass('sync');
        await file.sync();
      },
      truncate: (bytes) => file.truncate(bytes),
      size: () => file.size(),
      close: () => file.close(),
    };
  }
}
