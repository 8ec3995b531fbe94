/**
 * Creates a directory and its parents.
 *
 * Contract: resolves if the directory exists afterwards; rejects with the system's error otherwise. Node's `recursive` option
 * is not used: it loops forever below /proc, where creating an entry in an existing directory fails with ENOENT.
 * Bound: two calls for each part of the path.
 */
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** `mode`: that of each created directory. Default: only the owner has access. */
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
