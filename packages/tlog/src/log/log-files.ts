/**
 * The files of a log. `entries` is the source of truth; `hashes.*` and `bundles` are derived from it.
 *
 *     entries      every entry, see records.ts
 *     bundles      u64, big-endian, per full bundle of 256 entries: its end in `entries`
 *     hashes.L     the hashes of tile level L, 32 bytes each: tile n is at n * 8192
 *     checkpoint   the latest signed checkpoint, replaced atomically
 *     pruned       the index of the first entry that was not removed, see prune-mark.ts
 *
 * Contract: reads continue while write descriptors are replaced after a failure. The name of a new file is durable before
 * the file is used. No descriptor is closed during a read: `close` waits for reads in progress.
 * Bound: two descriptors for each of at most nine files, opened on first use.
 */
import { join } from 'node:path';
import { RonError, sched, type Parked } from '@ron/kernel';
import type { File, FileSystem } from '@ron/log';
import { HASH_BYTES } from '../tree/hash.ts';
import { bundleOf, RECORD_BYTES_MAX } from './records.ts';
import { TILE_WIDTH } from '../tiles/tiles.ts';

export const OFFSET_BYTES = 8;
/** The size of a bundle of maximum-length entries. */
export const BUNDLE_BYTES_MAX = TILE_WIDTH * RECORD_BYTES_MAX;

/** A file that `requireDiscard` creates and removes. */
const PROBE = 'probe.tmp';

export const hashesName = (level: number): string => `hashes.${level}`;

export class LogFiles {
  readonly fs: FileSystem;
  readonly dir: string;
  readonly #readers = new Map<string, Promise<File>>();
  readonly #writers = new Map<string, Promise<File>>();
  readonly #names: Set<string>;
  #reading = 0;
  #isClosed = false;
  #idle: Parked<void> | undefined;

  private constructor(fs: FileSystem, dir: string, names: Set<string>) {
    this.fs = fs;
    this.dir = dir;
    this.#names = names;
  }

  static async open(fs: FileSystem, dir: string): Promise<LogFiles> {
    return new LogFiles(fs, dir, new Set(await fs.list(dir)));
  }

  /** Whether the file existed when the log was opened, or was created since by this process. */
  has(name: string): boolean {
    return this.#names.has(name);
  }

  /** A descriptor for reading; it stays open. */
  reader(name: string): Promise<File> {
    return openOnce(this.#readers, name, () => this.fs.open(join(this.dir, name), 'read'));
  }

  /** A descriptor for writing; the file is created if it does not exist. */
  writer(name: string): Promise<File> {
    return openOnce(this.#writers, name, async () => {
      if (this.#names.has(name)) return await this.fs.open(join(this.dir, name), 'write');
      return await this.#create(name);
    });
  }

  /** After a failed sync the kernel may have dropped dirty pages, so the descriptors must not be used again. */
  async dropWriters(): Promise<void> {
    const writers = [...this.#writers.values()];
    this.#writers.clear();
    await closeAll(writers);
  }

  /** Syncs the files that are derived from the entries. */
  async syncDerived(): Promise<void> {
    const derived = [...this.#writers].filter(([name]) => name !== 'entries');
    const synced = await Promise.allSettled(derived.map(async ([, file]) => (await file).sync()));
    const failed = synced.find((each) => each.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  /** The current length of a file; 0 if it does not exist. Another process may have created it since. */
  async sizeOf(name: string): Promise<number> {
    const file = await this.reader(name).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    return file === undefined ? 0 : await file.size();
  }

  /** Reads `width` hashes of a tile. The caller must know that they exist. */
  async readHashes(level: number, tile: number, width: number): Promise<Buffer> {
    return await this.#readExactly(hashesName(level), width * HASH_BYTES, tile * TILE_WIDTH * HASH_BYTES);
  }

  /** The start of a bundle in `entries`; all bundles before it must be full. */
  async bundleStart(bundle: number): Promise<number> {
    if (bundle === 0) return 0;
    const bytes = await this.#readExactly('bundles', OFFSET_BYTES, (bundle - 1) * OFFSET_BYTES);
    return Number(bytes.readBigUInt64BE(0));
  }

  /** The end of a bundle in `entries`. For the last bundle, which may be growing, the largest possible end. */
  async bundleEnd(bundle: number): Promise<number> {
    const bundles = Math.floor((await this.sizeOf('bundles')) / OFFSET_BYTES);
    return bundle < bundles ? await this.bundleStart(bundle + 1) : await this.sizeOf('entries');
  }

  /** Throws `not_ready` if the file system cannot free a part of a file. */
  async requireDiscard(): Promise<void> {
    const path = join(this.dir, PROBE);
    await this.fs.remove(path).catch(() => undefined);
    const file = await this.fs.create(path);
    try {
      await file.write([new Uint8Array(1)], 0);
      await discard(file, 1);
    } finally {
      await file.close();
      await this.fs.remove(path);
    }
  }

  /** Frees the disk space of the entries and leaf hashes before `index`, the beginning of a bundle. */
  async discardBefore(index: number): Promise<void> {
    await discard(await this.writer('entries'), await this.bundleStart(index / TILE_WIDTH));
    await discard(await this.writer(hashesName(0)), index * HASH_BYTES);
  }

  /** Reads the first `width` entries of a bundle that ends at `end`, or later if it has more entries. */
  async readBundle(bundle: number, width: number, end: number): Promise<Buffer> {
    const start = await this.bundleStart(bundle);
    if (start >= end) throw damaged('bundles', `bundle ${bundle} begins at ${start}, after its end`);
    // The last bundle of a growing log may be followed by others, and a wrong `end` must not cost more memory than a bundle.
    const bytes = Math.min(end - start, BUNDLE_BYTES_MAX);
    const found = bundleOf(await this.#readExactly('entries', bytes, start), width);
    if (found === undefined) throw damaged('entries', `bundle ${bundle} does not hold ${width} entries`);
    return found;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.dropWriters();
    if (this.#reading > 0) {
      this.#idle ??= sched.park<void>('log.close');
      await this.#idle.promise;
    }
    const readers = [...this.#readers.values()];
    this.#readers.clear();
    await closeAll(readers);
  }

  async #create(name: string): Promise<File> {
    const path = join(this.dir, name);
    const file = await this.fs.create(path);
    try {
      await this.fs.syncDir(this.dir);
    } catch (error) {
      await file.close().catch(() => undefined);
      await this.fs.remove(path).catch(() => undefined);
      throw error;
    }
    this.#names.add(name);
    return file;
  }

  async #readExactly(name: string, length: number, position: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafe(length);
    const count = await this.#read(name, bytes, position);
    if (count < length) throw damaged(name, `it ends before byte ${position + length}`);
    return bytes;
  }

  async #read(name: string, into: Buffer, position: number): Promise<number> {
    if (this.#isClosed) throw new RonError('closed', 'the log is closed');
    this.#reading += 1;
    try {
      const file = await this.reader(name).catch((error: NodeJS.ErrnoException) => {
        throw error.code === 'ENOENT' ? damaged(name, 'it is missing') : error;
      });
      return await file.read(into, into.length, position);
    } finally {
      this.#reading -= 1;
      if (this.#reading === 0) this.#idle?.wake();
    }
  }
}

async function discard(file: File, bytes: number): Promise<void> {
  if (file.discardStart === undefined) throw new RonError('not_ready', 'this file system cannot free a part of a file');
  await file.discardStart(bytes);
}

export function damaged(name: string, what: string): RonError {
  return new RonError('audit_integrity', `the file ${name} of the log is damaged: ${what}`);
}

/** Returns the open file of that name or opens it. A failed attempt is not cached. */
function openOnce(files: Map<string, Promise<File>>, name: string, open: () => Promise<File>): Promise<File> {
  const known = files.get(name);
  if (known !== undefined) return known;
  const opened = open();
  files.set(name, opened);
  opened.catch(() => {
    if (files.get(name) === opened) files.delete(name);
  });
  return opened;
}

async function closeAll(files: readonly Promise<File>[]): Promise<void> {
  await Promise.allSettled(files.map(async (file) => (await file).close()));
}
