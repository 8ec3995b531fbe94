/**
 * The disk of a model: it can lose power, and the explorer decides when its calls end.
 *
 * Contract: the disk responds at once until it is live. `onChange` is called after each call that changed it.
 */
import assert from 'node:assert/strict';
import type { World } from '@ron/explorer';
import type { File, FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';

export type Files = ReadonlyMap<string, Uint8Array>;

/** Calls of the disk that take time. */
export type Slow = 'write' | 'sync' | 'read';

export interface ModelDiskInit {
  /** Default: none. */
  readonly files?: Files;
  /** Default: syncs. */
  readonly slow?: readonly Slow[];
  /** Syncs that may fail. Default 0. */
  readonly failures_max?: number;
}

/** Crash points of a model have fewer. */
const IMAGES_MAX = 1000;

export class ModelDisk implements FileSystem {
  isLive = false;
  onChange: () => void = () => undefined;
  #failures_left: number;
  readonly #disk: CrashFileSystem;
  readonly #world: World;
  readonly #slow: readonly Slow[];

  constructor(world: World, { files, slow = ['sync'], failures_max = 0 }: ModelDiskInit) {
    this.#world = world;
    this.#disk = new CrashFileSystem(files);
    this.#slow = slow;
    this.#failures_left = failures_max;
  }

  create = async (path: string): Promise<File> => this.#file(await this.#change(() => this.#disk.create(path)));
  open = async (path: string, access: 'read' | 'write'): Promise<File> =>
    this.#file(await this.#disk.open(path, access));
  list = (dir: string): Promise<string[]> => this.#disk.list(dir);
  makeDir = (dir: string): Promise<void> => this.#disk.makeDir(dir);
  rename = (from: string, to: string): Promise<void> => this.#change(() => this.#disk.rename(from, to));
  remove = (path: string): Promise<void> => this.#change(() => this.#disk.remove(path));
  syncDir = (dir: string): Promise<void> => this.#change(() => this.#disk.syncDir(dir));

  /** The files that a killed process leaves behind. */
  files(): Files {
    return this.#disk.files();
  }

  /** Every disk that a power cut could leave behind now. */
  images(): Files[] {
    return [...this.#disk.imagesAt(this.#disk.operations, IMAGES_MAX, () => assert.fail('too many images'))];
  }

  #file(file: File): File {
    return {
      ...file,
      write: async (buffers, at) => {
        await this.#take('write');
        await this.#change(() => file.write(buffers, at));
      },
      truncate: (bytes) => this.#change(() => file.truncate(bytes)),
      read: async (into, length, position) => {
        await this.#take('read');
        return await file.read(into, length, position);
      },
      sync: async () => {
        await this.#take('sync');
        if (this.#fails()) throw Object.assign(new Error('EIO'), { code: 'EIO' });
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

  async #take(call: Slow): Promise<void> {
    if (this.isLive && this.#slow.includes(call)) await this.#world.io(call);
  }

  #fails(): boolean {
    if (!this.isLive || this.#failures_left === 0) return false;
    if (this.#world.choose('sync', ['ok', 'fails']) === 'ok') return false;
    this.#failures_left -= 1;
    return true;
  }
}
