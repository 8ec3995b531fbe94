/** Maps errors of SQLite to the error table. */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { RonError } from '@ron/kernel/core';
import { diskError } from '@ron/log/disk-error';
import type { CallError } from './calls.ts';

const SQLITE = { BUSY: 5, READONLY: 8, IOERR: 10, CORRUPT: 11, FULL: 13, CANTOPEN: 14, NOTADB: 26 } as const;
/** A disk with less is full: SQLite reports a failed extension of its shared index as an input/output error. */
const FULL_BYTES = 1024 * 1024;

/** The primary result code, or undefined for an error that is not SQLite's. */
export function sqliteCode(error: unknown): number | undefined {
  const { errcode } = error as { errcode?: unknown };
  return typeof errcode === 'number' ? errcode & 0xff : undefined;
}

export const isDamage = (error: unknown): boolean => {
  const code = sqliteCode(error);
  return code === SQLITE.CORRUPT || code === SQLITE.NOTADB;
};

export function callError(error: unknown, path: string | undefined): CallError {
  if (error instanceof RonError) {
    const { code, message, reason } = error;
    return reason === undefined ? { code, message } : { code, message, reason };
  }
  const code = sqliteCode(error);
  if (code === undefined && typeof (error as NodeJS.ErrnoException).code === 'string')
    return callError(diskError(error), path);
  const message = error instanceof Error ? error.message : String(error);
  if (code === SQLITE.FULL || (code === SQLITE.IOERR && isFull(path))) {
    return { code: 'storage_full', message: 'the disk of the index database is full' };
  }
  if (isDamage(error)) return { code: 'integrity', message: `the index database is damaged: ${message}` };
  if (code === SQLITE.BUSY) return { code: 'timeout', message: 'the index database is locked' };
  if (code === SQLITE.READONLY) return { code: 'not_ready', message: 'the disk of the index database is read-only' };
  if (code === SQLITE.IOERR || code === SQLITE.CANTOPEN) {
    return { code: 'not_ready', message: `the disk of the index database failed: ${message}` };
  }
  return { code: 'internal', message: `the index database failed: ${message}` };
}

function isFull(path: string | undefined): boolean {
  if (path === undefined) return false;
  try {
    const { bavail, bsize } = statfsSync(dirname(path));
    return bavail * bsize < FULL_BYTES;
  } catch {
    return false;
  }
}
