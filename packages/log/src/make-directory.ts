/**
 * Makes a directory, with those above it.
 *
 * Promise: resolves when it is there, made now or before; rejects with the system's error when it cannot be. Not by the
 * `recursive` of Node, which tries for ever where the system says of an entry in a directory that exists that there is no
 * such directory, as /proc does.
 * Bound: two calls for each part of the path. Cancellation: none; file calls end by themselves.
 */
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** `mode`: of each that is made. Default: for the owner only. */
export async function makeDirectory(path: string, mode = 0o700): Promise<void> {
  try {
    await mkdir(path, { mode });
  } catch (error) {
    const above = dirname(path);
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || above === path)
      return await insistOnDirectory(path, error);
    await makeDirectory(above, mode);
    await mkdir(path, { mode }).catch((again: unknown) => insistOnDirectory(path, again));
  }
}

async function insistOnDirectory(path: string, error: unknown): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (found?.isDirectory() !== true) throw error;
}
