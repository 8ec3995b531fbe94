/**
 * The code of the threads that read MBTiles. [edge I-7] Only these files call SQLite.
 *
 * Contract: `verify` refuses a bad file with `validation` and the reason, and hashes all bytes of a good one: reads are not
 * compared with hashes, so no address is taken from a file beside it. `tile` checks after each read that the file is still
 * the verified one, and reports damage as a result, so that no other bytes leave the thread. A thread opens a database
 * when it needs it, also after it replaced a thread that died, by its path: it is refused if another file is there.
 * Bound: `OPEN_MAX` open databases; the least recently used one is closed.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import { realpathSync, statSync } from 'node:fs';
import { isRonError } from '@ron/kernel/core';
import { hashFile } from '../../hashes/thread/hash-file.ts';
import type { DatabaseFile, TileResult, VerifiedMbtiles } from './calls.ts';
import { describe } from './describe.ts';
import { isTooBig, refused, rethrowRefusal } from './errors.ts';
import { openDatabase, TILE_BYTES_MAX, type OpenDatabase } from './open-database.ts';

const OPEN_MAX = 512;
/** Files with changes that are not in the database itself. */
const SIDE_FILES = ['-wal', '-journal'];

/** In the order of their last use. */
const databases = new Map<number, OpenDatabase>();

export async function verify(file: Omit<DatabaseFile, 'id'>): Promise<VerifiedMbtiles> {
  requireNoSideFiles(file.path);
  try {
    using database = openDatabase(file);
    const description = describe(database);
    const { address } = await hashFile(database.file);
    if (!database.isUnchanged()) throw refused('the file changed while it was verified');
    return { ...description, address };
  } catch (error) {
    return rethrowRefusal(error);
  }
}

function requireNoSideFiles(path: string): void {
  // A program that writes the pack has them beside the file itself, not beside a link to it.
  const real_path = realpathSync(path);
  for (const suffix of SIDE_FILES) {
    if ((statSync(real_path + suffix, { throwIfNoEntry: false })?.size ?? 0) === 0) continue;
    throw refused(`the file with the suffix ${suffix} has changes: close the program that writes the pack`);
  }
}

/** Opens the database for later reads. */
export function open(file: DatabaseFile): void {
  try {
    databaseOf(file);
  } catch (error) {
    rethrowRefusal(error);
  }
}

export function tile(file: DatabaseFile, zoom: number, column: number, row: number): TileResult {
  try {
    const database = databaseOf(file);
    const found = read(database.tile, zoom, column, row);
    return database.isUnchanged() ? found : { kind: 'damaged', problem: 'the file changed after it was mounted' };
  } catch (error) {
    return damageOf(error);
  }
}

export function close(id: number): void {
  databases.get(id)?.[Symbol.dispose]();
  databases.delete(id);
}

function read(statement: OpenDatabase['tile'], zoom: number, column: number, row: number): TileResult {
  try {
    const found = statement.get(zoom, column, row) as { tile: Uint8Array | null } | undefined;
    const bytes = found?.tile;
    if (bytes === undefined || bytes === null) return { kind: 'absent' };
    return bytes.length > TILE_BYTES_MAX ? { kind: 'too_large' } : { kind: 'tile', bytes };
  } catch (error) {
    if (isTooBig(error)) return { kind: 'too_large' };
    throw error;
  }
}

/** A disk that fails is not damage: the next read may succeed. */
function damageOf(error: unknown): TileResult {
  try {
    return rethrowRefusal(error);
  } catch (reason) {
    if (!isRonError(reason, 'validation')) throw reason;
    return { kind: 'damaged', problem: reason.message };
  }
}

function databaseOf(file: DatabaseFile): OpenDatabase {
  const known = databases.get(file.id);
  const database = known ?? openDatabase(file);
  databases.delete(file.id);
  databases.set(file.id, database);
  if (databases.size > OPEN_MAX) close(databases.keys().next().value!);
  return database;
}
