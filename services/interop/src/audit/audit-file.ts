/**
 * The audit log as a file: lines of JSON, in two files that replace each other.
 *
 * Contract: complete lines are appended in order. The end of a line that a crash or a failed write cut off is cut by the next
 * write, which opens the file if it is not open: a start does not depend on it. Lines are not synced one by one: a power cut may
 * lose the last ones, a killed process loses none that were written. After a failed open, write or rotation, the next write tries
 * again.
 * Bound: `FILE_BYTES_MAX` for each of `audit.log` and `audit.log.1`; the older file is replaced.
 * Cancellation: none. One write at a time: while a disk hangs, the audit channel drops its oldest events.
 */
import { join } from 'node:path';
import type { File, FileSystem } from '@ron/log';

const FILE_BYTES_MAX = 64 * 1024 * 1024;
const NAME = 'audit.log';
const BLOCK_BYTES = 64 * 1024;
const LINE_FEED = 10;

interface OpenFile {
  readonly file: File;
  /** The end of its complete lines. */
  bytes: number;
  /** A failed write may have left bytes after `bytes`. */
  isTorn: boolean;
}

export class AuditFile implements AsyncDisposable {
  readonly #fs: FileSystem;
  readonly #path: string;
  /** Undefined before the first write, and after a failed rotation. */
  #open: OpenFile | undefined;

  /** `dir` exists. */
  constructor(fs: FileSystem, dir: string) {
    this.#fs = fs;
    this.#path = join(dir, NAME);
  }

  async write(lines: string): Promise<void> {
    const bytes = Buffer.from(lines);
    this.#open ??= await openOrCreate(this.#fs, this.#path);
    if (this.#open.bytes + bytes.length > FILE_BYTES_MAX) this.#open = await this.#rotate(this.#open);
    await append(this.#open, bytes);
  }

  async close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    if (open === undefined) return;
    await cut(open).catch(() => undefined);
    await open.file.sync().catch(() => undefined);
    await open.file.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #rotate(full: OpenFile): Promise<OpenFile> {
    await cut(full);
    await full.file.sync();
    this.#open = undefined;
    await full.file.close();
    await this.#fs.rename(this.#path, `${this.#path}.1`);
    return await openOrCreate(this.#fs, this.#path);
  }
}

async function append(open: OpenFile, bytes: Uint8Array): Promise<void> {
  await cut(open);
  open.isTorn = true;
  await open.file.write([bytes], open.bytes);
  open.isTorn = false;
  open.bytes += bytes.length;
}

/** Removes the part that a failed write left, so that a shorter line does not end in it. */
async function cut(open: OpenFile): Promise<void> {
  if (!open.isTorn) return;
  await open.file.truncate(open.bytes);
  open.isTorn = false;
}

async function openOrCreate(fs: FileSystem, path: string): Promise<OpenFile> {
  const file = await existing(fs, path);
  if (file === undefined) return { file: await fs.create(path), bytes: 0, isTorn: false };
  try {
    const open = { file, bytes: await endOfLines(file), isTorn: true };
    await cut(open);
    return open;
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function existing(fs: FileSystem, path: string): Promise<File | undefined> {
  try {
    return await fs.open(path, 'write');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** The end of the last complete line. */
async function endOfLines(file: File): Promise<number> {
  const block = Buffer.alloc(BLOCK_BYTES);
  for (let end = await file.size(); end > 0; end -= BLOCK_BYTES) {
    const from = Math.max(0, end - BLOCK_BYTES);
    const length = await file.read(block, end - from, from);
    const at = block.subarray(0, length).lastIndexOf(LINE_FEED);
    if (at >= 0) return from + at + 1;
  }
  return 0;
}
