/**
 * An exclusive lock of a directory for one process.
 *
 * Contract: the operating system holds the lock for this process and releases it however the process ends; a leftover lock
 * file locks nothing. Node has no call for such locks, so SQLite, which comes with Node, takes it.
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
