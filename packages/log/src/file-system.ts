/**
 * The seam between a log and the disk: the few operations whose order decides what survives a power cut.
 *
 * Promise: `sync` returns only when what was written before it is on stable storage; a name made by `create` or
 * `rename` is only certain to survive after `syncDir` of its directory. The crash shim implements the same interface
 * and loses everything that this contract does not promise.
 * Bound: no buffering here. Cancellation: none; file calls end by themselves, callers race them with a deadline.
 */
import fs from 'node:fs';
import { dirname } from 'node:path';
import { makeDirectory } from './make-directory.ts';
import { RonError } from '@ron/kernel';
import { tryLock } from './file-lock.ts';
import { readNow } from './read-now.ts';

export interface File {
  /** Writes all of `buffers` at `position`, or throws; then part of them may be there. */
  write(buffers: readonly Uint8Array[], position: number): Promise<void>;
  /** Reads up to `length` bytes at `position` into `into`; fewer only at the end of the file. */
  read(into: Uint8Array, length: number, position: number): Promise<number>;
  /** The same for what is in memory already; undefined when the disk would have to be waited for, or that is not known. */
  readNow?(into: Uint8Array, length: number, position: number): number | undefined;
  /** Makes the content durable (and the size, when it changed). */
  sync(): Promise<void>;
  truncate(bytes: number): Promise<void>;
  size(): Promise<number>;
  /** As `FileSystem.identity`, of the open file itself, whatever became of its name. */
  identity?(): Promise<string>;
  close(): Promise<void>;
}

export interface DiskRoom {
  readonly free_bytes: number;
  readonly total_bytes: number;
}

export interface FileSystem {
  /** Makes a new file to write and read; fails if the name is taken. */
  create(path: string): Promise<File>;
  /** Refuses what is no regular file, and never waits for one. */
  open(path: string, access: 'read' | 'write'): Promise<File>;
  /** Names in a directory, in no order. */
  list(dir: string): Promise<string[]>;
  makeDir(dir: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Makes the names in a directory durable. */
  syncDir(dir: string): Promise<void>;
  /** Keeps other processes away; undefined when one has it. A disk that no other process can see has no such call. */
  lock?(path: string): Disposable | undefined;
  /**
   * What lies at a path: the same text while it is the same file or directory, however it is opened. Throws when there is
   * nothing. A file system that no other process can change has no such call.
   */
  identity?(path: string): Promise<string>;
  /** How much the disk of a directory holds and how much more it takes, where that is known. */
  room?(dir: string): Promise<DiskRoom>;
}

type Callback<T> = (error: NodeJS.ErrnoException | null, value: T) => void;

/** Callbacks and plain descriptors: half the cost of `node:fs/promises` on the commit path. */
function call<T = void>(start: (done: Callback<T>) => void): Promise<T> {
  return new Promise((resolve, reject) => start((error, value) => (error === null ? resolve(value) : reject(error))));
}

const identityOf = ({ dev, ino }: fs.Stats): string => `${dev} ${ino}`;

class RealFile implements File {
  readonly #fd: number;
  #closed = false;

  constructor(fd: number) {
    this.#fd = fd;
  }

  async write(buffers: readonly Uint8Array[], position: number): Promise<void> {
    let rest = buffers;
    let at = position;
    while (rest.length > 0) {
      // [storage I-7] [kms I-7] File calls run in the thread pool of Node.
      const written = await call<number>((done) => fs.writev(this.#fd, rest, at, done));
      at += written;
      rest = without(rest, written);
    }
  }

  async read(into: Uint8Array, length: number, position: number): Promise<number> {
    let filled = 0;
    while (filled < length) {
      const from = filled;
      const count = await call<number>((done) => {
        fs.read(this.#fd, into, from, length - from, position + from, done);
      });
      if (count === 0) break;
      filled += count;
    }
    return filled;
  }

  readNow(into: Uint8Array, length: number, position: number): number | undefined {
    return this.#closed ? undefined : readNow(this.#fd, into, length, position);
  }

  sync(): Promise<void> {
    return call((done) => fs.fdatasync(this.#fd, done as fs.NoParamCallback));
  }

  truncate(bytes: number): Promise<void> {
    return call((done) => fs.ftruncate(this.#fd, bytes, done as fs.NoParamCallback));
  }

  async size(): Promise<number> {
    return (await call<fs.Stats>((done) => fs.fstat(this.#fd, done))).size;
  }

  async identity(): Promise<string> {
    return identityOf(await call<fs.Stats>((done) => fs.fstat(this.#fd, done)));
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await call((done) => fs.close(this.#fd, done as fs.NoParamCallback));
  }
}

/** What is left of `buffers` after their first `count` bytes. */
function without(buffers: readonly Uint8Array[], count: number): readonly Uint8Array[] {
  let skip = count;
  for (const [index, buffer] of buffers.entries()) {
    if (skip < buffer.length) return [buffer.subarray(skip), ...buffers.slice(index + 1)];
    skip -= buffer.length;
  }
  return [];
}

const FILE_MODE = 0o600;
const DIR_MODE = 0o700;
const createFile = (path: string): Promise<File> =>
  call<number>((done) => fs.open(path, 'wx+', FILE_MODE, done)).then((fd) => new RealFile(fd));

/** Does not block on a pipe without a writer, and refuses a path that is not a regular file. */
async function openFile(path: string, access: 'read' | 'write'): Promise<File> {
  const { O_NONBLOCK, O_RDONLY, O_RDWR } = fs.constants;
  const flags = (access === 'read' ? O_RDONLY : O_RDWR) | O_NONBLOCK;
  const fd = await call<number>((done) => fs.open(path, flags, done));
  const file = new RealFile(fd);
  try {
    const stats = await call<fs.Stats>((done) => fs.fstat(fd, done));
    if (!stats.isFile()) throw new RonError('not_ready', `${path} is not a regular file: put the right one there`);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

export const realFileSystem: FileSystem = {
  create: createFile,
  open: openFile,
  list: (dir) => call<string[]>((done) => fs.readdir(dir, done)),
  async makeDir(dir) {
    await makeDirectory(dir, DIR_MODE);
    await this.syncDir(dirname(dir));
  },
  rename: (from, to) => call((done) => fs.rename(from, to, done as fs.NoParamCallback)),
  remove: (path) => call((done) => fs.unlink(path, done as fs.NoParamCallback)),
  async syncDir(dir) {
    const fd = await call<number>((done) => fs.open(dir, 'r', done));
    try {
      await call((done) => fs.fsync(fd, done as fs.NoParamCallback));
    } finally {
      await call((done) => fs.close(fd, done as fs.NoParamCallback));
    }
  },
  lock: tryLock,
  identity: (path) => call<fs.Stats>((done) => fs.stat(path, done)).then(identityOf),
  async room(dir) {
    const { bavail, blocks, bsize } = await call<fs.StatsFs>((done) => fs.statfs(dir, done));
    return { free_bytes: bavail * bsize, total_bytes: blocks * bsize };
  },
};
