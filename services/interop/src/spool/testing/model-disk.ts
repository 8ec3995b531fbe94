/**
 * The disk of a model: it can lose power, and the explorer decides when its syncs and reads end.
 *
 * Contract: the disk responds at once until it is live. `onChange` is called after each call that changed it.
 */
import assert from 'node:assert/strict';
import type { World } from '@ron/explorer';
import type { File, FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';

export type Files = ReadonlyMap<string, Uint8Array>;

/** Crash points of a model have fewer. */
const IMAGES_MAX = 1000;

export class ModelDisk implements FileSystem {
  isLive = false;
  onChange: () => void = () => undefined;
  readonly #disk = new CrashFileSystem();
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  create = async (path: string): Promise<File> => this.#file(await this.#change(() => this.#disk.create(path)));
  open = async (path: string, access: 'read' | 'write'): Promise<File> =>
    this.#file(await this.#disk.open(path, access));
  list = (dir: string): Promise<string[]> => this.#disk.list(dir);
  makeDir = (dir: string): Promise<void> => this.#disk.makeDir(dir);
  rename = (from: string, to: string): Promise<void> => this.#change(() => this.#disk.rename(from, to));
  remove = (path: string): Promise<void> => this.#change(() => this.#disk.remove(path));
  syncDir = (dir: string): Promise<void> => this.#change(() => this.#disk.syncDir(dir));

  /** Every disk that a power cut or a kill could leave behind now. */
  images(): Files[] {
    const { operations } = this.#disk;
    return [this.#disk.files(), ...this.#disk.imagesAt(operations, IMAGES_MAX, () => assert.fail('too many images'))];
  }

  /** Of all files. */
  get bytes(): number {
    return [...this.#disk.files().values()].reduce((sum, { length }) => sum + length, 0);
  }

  #file(file: File): File {
    return {
      ...file,
      write: (buffers, at) => this.#change(() => file.write(buffers, at)),
      truncate: (bytes) => this.#change(() => file.truncate(bytes)),
      read: async (into, length, position) => {
        if (this.isLive) await this.#world.io('read');
        return await file.read(into, length, position);
      },
      sync: async () => {
        if (this.isLive) await this.#world.io('sync');
        await this.#change(() => file.sync());
      },
    };
  }

  /** `CrashFileSystem` changes in the synchronous part of its calls. */
  #change<T>(call: () => Promise<T>): Promise<T> {
    const called = call();
    this.onChange();
    return called;
  }
}
