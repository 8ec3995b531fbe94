/**
 * Atomic replacement of small files.
 *
 * Contract: after `writeWhole` the new file survives a power failure; a failure before leaves the whole old file or the whole
 * new one. It writes a temporary file, syncs and renames it, and syncs the directory. The temporary file of a failed write is
 * removed, if the disk lets it: a crash leaves one, see `removeLeftOver`. The caller ensures one writer at a time.
 * Bound: the caller's.
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
  } catch (error) {
    // On a full disk it takes room that other writes need.
    await fs.remove(temporary(path)).catch(() => undefined);
    throw error;
  } finally {
    // Concurrently: under load every call to the disk waits in a queue.
    await Promise.all([file.close(), renamed]);
  }
  await fs.syncDir(dirname(path));
}

/** The temporary file of a failed write may exist. */
async function createAnew(fs: FileSystem, path: string): Promise<File> {
  try {
    return await fs.create(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    await fs.remove(path);
    return await fs.create(path);
  }
}

/** Undefined when the file does not exist. */
export async function readWhole(fs: FileSystem, path: string, bytes_max: number): Promise<Buffer | undefined> {
  const file = await fs.open(path, 'read').catch(ignoreMissing);
  if (file === undefined) return undefined;
  try {
    const size = await file.size();
    if (size > bytes_max)
      throw new RonError('not_ready', `${path} has ${size} bytes, more than the limit of ${bytes_max}`);
    const bytes = Buffer.alloc(size);
    const count = await file.read(bytes, size, 0);
    assert(count === size, 'the file has one writer, so it is read completely');
    return bytes;
  } finally {
    await file.close();
  }
}

/** Removes the temporary file of an unfinished write. */
export async function removeLeftOver(fs: FileSystem, path: string): Promise<void> {
  await fs.remove(temporary(path)).catch(ignoreMissing);
}

function ignoreMissing(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
}
