/** Temporary directories that are removed when the test ends, and removal of directories in use. */
import { mkdtempSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface TempDir extends AsyncDisposable {
  readonly path: string;
}

/** A test context, or a list of clean-up functions for a whole file. */
export interface After {
  after(cleanUp: () => Promise<void> | void): void;
}

const PREFIX = join(tmpdir(), 'ron-test-');

/** Also a directory in which a running service still creates files: a file that appears meanwhile is removed by a further try. */
export const removeDir = (path: string): Promise<void> => rm(path, { recursive: true, force: true, maxRetries: 10 });

/** For one scope: `await using temp = await tempDir()`. */
export async function tempDir(): Promise<TempDir> {
  const path = await mkdtemp(PREFIX);
  return { path, [Symbol.asyncDispose]: () => removeDir(path) };
}

/** For the time of a test: `const dir = tempDirFor(t)`. */
export function tempDirFor(t: After): string {
  const path = mkdtempSync(PREFIX);
  t.after(() => removeDir(path));
  return path;
}
