/**
 * One process for one directory.
 *
 * Promise: the lock is the operating system's, held by this process and gone with it however it ends; a file that was
 * left behind locks nothing. Node has no call for it, but SQLite takes such a lock and Node brings SQLite.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- takes a lock without waiting, when a directory is opened
import { DatabaseSync } from 'node:sqlite';

const SQLITE_BUSY = 5;

/** Undefined when another process holds it. */
export function tryLock(path: string): Disposable | undefined {
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    database.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY) return undefined;
    throw error;
  }
  return { [Symbol.dispose]: () => database.close() };
}
