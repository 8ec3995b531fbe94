/**
 * Stores the URL of an unfinished upload, so that a later command can resume it.
 *
 * Contract: an entry is keyed by the URL of the service and the path, size, inode and modification time of the file, so a
 * changed file never resumes an old upload. A lost entry only costs time: failures to read or write it are ignored.
 * Bound: entries older than `AGE_MS_MAX` are removed.
 */
import { createHash } from 'node:crypto';
import type { Stats } from 'node:fs';
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sched } from '@ron/kernel/core';
import { makeDirectory } from '@ron/log/make-directory';
import { cacheHome } from './cache-home.ts';
import type { Io } from './io.ts';

const AGE_MS_MAX = 7 * 24 * 3600 * 1000;

export class UploadUrlStore {
  readonly #dir: string;
  readonly #path: string;

  constructor(dir: string, url: string, file: string, { size, mtimeMs, ino }: Stats) {
    const name = createHash('sha256')
      .update(JSON.stringify([url, file, size, mtimeMs, ino]))
      .digest('hex');
    this.#dir = dir;
    this.#path = join(dir, name);
  }

  async load(): Promise<string | undefined> {
    try {
      return await readFile(this.#path, 'utf8');
    } catch {
      return undefined;
    }
  }

  async save(upload_url: string): Promise<void> {
    try {
      await makeDirectory(this.#dir);
      await writeFile(this.#path, upload_url, { mode: 0o600 });
      await this.#removeOld();
    } catch {
      // The upload continues; it just cannot be resumed.
    }
  }

  async remove(): Promise<void> {
    await rm(this.#path, { force: true }).catch(() => undefined);
  }

  async #removeOld(): Promise<void> {
    for (const name of await readdir(this.#dir)) {
      const path = join(this.#dir, name);
      const { mtimeMs } = await stat(path);
      if (sched.wall_ms() - mtimeMs > AGE_MS_MAX) await rm(path, { force: true });
    }
  }
}

/** The directory of the store: `--state`, or the user's cache directory. */
export function uploadStoreDir(given: string | undefined, io: Pick<Io, 'env'>): string {
  return given ?? join(cacheHome(io.env), 'uploads');
}
