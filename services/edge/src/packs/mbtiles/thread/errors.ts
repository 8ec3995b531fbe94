/** Errors of SQLite, as reasons for which a pack is refused. */
import { RonError } from '@ron/kernel/core';

const SQLITE = { NOMEM: 7, IOERR: 10, CORRUPT: 11, CANTOPEN: 14, TOOBIG: 18, AUTH: 23, NOTADB: 26 } as const;

/** The primary result code, or undefined for an error that is not SQLite's. */
function sqliteCode(error: unknown): number | undefined {
  const { errcode } = error as { errcode?: unknown };
  return typeof errcode === 'number' ? errcode & 0xff : undefined;
}

export const isTooBig = (error: unknown): boolean => sqliteCode(error) === SQLITE.TOOBIG;

/** Why SQLite cannot read the file; undefined for an error that is not SQLite's. */
function sqliteReason(error: unknown): string | undefined {
  const code = sqliteCode(error);
  if (code === undefined) return undefined;
  const { message } = error as Error;
  if (code === SQLITE.NOTADB) return 'it is not an SQLite database';
  if (code === SQLITE.CORRUPT) return `its database is damaged: ${message}`;
  if (code === SQLITE.AUTH || message.startsWith('not authorized')) {
    return `its schema uses recursion, a function or a statement that is not allowed: ${message}`;
  }
  if (code === SQLITE.TOOBIG) return 'a value of its metadata or schema is above 10 MiB';
  if (code === SQLITE.NOMEM) return 'its schema needs too much memory';
  return `SQLite cannot read it: ${message}`;
}

/** A bad pack. The message states the reason alone; callers add the file. */
export const refused = (reason: string): RonError => new RonError('validation', reason);

/** Throws the reason for which the pack is refused, and other errors as they are. A failing disk is not a bad pack. */
export function rethrowRefusal(error: unknown): never {
  const code = sqliteCode(error);
  if (code === SQLITE.IOERR || code === SQLITE.CANTOPEN) {
    throw new RonError('not_ready', `the disk failed: ${(error as Error).message}`, { cause: error });
  }
  const reason = sqliteReason(error);
  throw reason === undefined ? error : refused(reason);
}
