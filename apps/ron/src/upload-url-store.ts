/**
 * Remembers where an interrupted upload can be taken up: the URL that the server gave, for this file as it is now.
 *
 * Promise: a file that was changed since has another name here, so a stale URL is never used for it. Losing this memory
 * costs time, nothing else: every failure to read or write it is ignored.
 * Bound: entries older than `AGE_MS_MAX` are removed.
 */
import { createHash } from 'node:crypto';
import type { Stats } from 'node:fs';
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sched } from '@ron/kernel/core';
import { makeDirectory } from '@ron/kernel/make-directory';
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

  async recall(): Promise<string | undefined> {
    try {
      return await readFile(this.#path, 'utf8');
    } catch {
      return undefined;
    }
  }

  async remember(upload_url: string): Promise<void> {
    try {
      await makeDirectory(this.#dir);
      await writeFile(this.#path, upload_url, { mode: 0o600 });
      await this.#removeOld();
    } catch {
      // Then it cannot be resumed; it can still be done.
    }
  }

  async forget(): Promise<void> {
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

/** `--state`, or the user's cache directory. */
export function uploadStoreDir(given: string | undefined, io: Pick<Io, 'env'>): string {
  return given ?? join(cacheHome(io.env), 'uploads');
}
