/**
 * Files that are read and written as a whole.
 *
 * Promise: after `writeWhole` the file is the new one, even if power fails; if it fails before, it is the old one or
 * the new one, whole. It is written beside, synced, put in place in one step, and the directory is synced.
 * Bound: the caller's. One writer at a time; the caller sees to that. Cancellation: none; file calls end by themselves.
 */
import { dirname } from 'node:path';
import { assert, RonError } from '@ron/kernel';
import type { File, FileSystem } from './file-system.ts';

const temporary = (path: string): string => `${path}.tmp`;

export async function writeWhole(fs: FileSystem, path: string, bytes: Uint8Array): Promise<void> {
  const file = await createAnew(fs, temporary(path));
  let renamed: Promise<void> | undefined;
  try {
    await file.write([bytes], 0);
    await file.sync();
    renamed = fs.rename(temporary(path), path);
  } finally {
    // At the same time: under load every call to the disk waits for its turn.
    await Promise.all([file.close(), renamed]);
  }
  await fs.syncDir(dirname(path));
}

/** A write that failed may have left its file behind. */
async function createAnew(fs: FileSystem, path: string): Promise<File> {
  try {
    return await fs.create(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    await fs.remove(path);
    return await fs.create(path);
  }
}

/** Undefined when there is none. */
export async function readWhole(fs: FileSystem, path: string, bytes_max: number): Promise<Buffer | undefined> {
  const file = await fs.open(path, 'read').catch(ignoreMissing);
  if (file === undefined) return undefined;
  try {
    const size = await file.size();
    if (size > bytes_max) throw new RonError('not_ready', `${path} has ${size} bytes, more than it can have`);
    const bytes = Buffer.alloc(size);
    const count = await file.read(bytes, size, 0);
    assert(count === size, 'a file that nobody else writes is read as a whole');
    return bytes;
  } finally {
    await file.close();
  }
}

/** Removes what a write that did not come to its end left behind. */
export async function removeLeftOver(fs: FileSystem, path: string): Promise<void> {
  await fs.remove(temporary(path)).catch(ignoreMissing);
}

function ignoreMissing(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
}
