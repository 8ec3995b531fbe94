/**
 * The interface between a log and the disk: the operations whose order decides which bytes survive a power failure.
 *
 * Contract: `sync` returns only when all earlier writes are on stable storage. A name that `create` or `rename` made is
 * certain to survive only after `syncDir` of its directory. `CrashFileSystem` implements the same interface and loses
 * everything that this contract does not guarantee.
 * A call cannot be cancelled; callers apply a deadline.
 */
import fs from 'node:fs';
import { dirname } from 'node:path';
import { discardStart } from './discard.ts';
import { makeDirectory } from './make-directory.ts';
import { RonError } from '@ron/kernel';
import { tryLock } from './file-lock.ts';
import { readNow } from './read-now.ts';

export interface File {
  /** Writes all of `buffers` at `position`, or throws; then a part of them may be written. */
  write(buffers: readonly Uint8Array[], position: number): Promise<void>;
  /** Reads up to `length` bytes at `position` into `into`; fewer only at the end of the file. */
  read(into: Uint8Array, length: number, position: number): Promise<number>;
  /** As `read`, from the page cache; undefined if the read would or may have to wait for the disk. */
  readNow?(into: Uint8Array, length: number, position: number): number | undefined;
  /** Makes the content durable (and the size, when it changed). */
  sync(): Promise<void>;
  truncate(bytes: number): Promise<void>;
  /** Frees the disk space of the first `bytes`, which read as zeros from now on. Absent or rejects if that is not possible. */
  discardStart?(bytes: number): Promise<void>;
  size(): Promise<number>;
  /** As `FileSystem.identity`, of the open file itself, even if it was renamed or deleted. */
  identity?(): Promise<string>;
  close(): Promise<void>;
}

export interface DiskRoom {
  readonly free_bytes: number;
  readonly total_bytes: number;
}

export interface FileSystem {
  /** Creates a file for reading and writing; fails if the name exists. */
  create(path: string): Promise<File>;
  /** Refuses a path that is not a regular file, and never blocks on one. */
  open(path: string, access: 'read' | 'write'): Promise<File>;
  /** Names in a directory, in no order. */
  list(dir: string): Promise<string[]>;
  makeDir(dir: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Makes the names in a directory durable. */
  syncDir(dir: string): Promise<void>;
  /** Locks a path; undefined if another process has the lock. Absent if no other process can see the disk. */
  lock?(path: string): Disposable | undefined;
  /**
   * The identity of the file or directory at a path: the same text while it is the same one. Throws if there is none. Absent
   * if no other process can change the file system.
   */
  identity?(path: string): Promise<string>;
  /** The size and the free space of the disk of a directory, if known. */
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
      // [storage I-7] [kms I-7] [index I-7] [edge I-7] [interop I-7] File calls run in the thread pool of Node.
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

  discardStart(bytes: number): Promise<void> {
    return discardStart(this.#fd, bytes);
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

/** `buffers` without their first `count` bytes. */
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
    if (!stats.isFile())
      throw new RonError('not_ready', `${path} is not a regular file: replace it with the right file`);
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
