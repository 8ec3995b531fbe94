/**
 * Opens the database of a pack in a thread.
 *
 * Contract: the database is read-only and immutable: no lock, journal or WAL file is read or made. The authorizer permits SELECT
 * and reads of any table; recursion, functions, PRAGMA and ATTACH of the file's own views are refused. The tile query is
 * checked before it can run. The file is a regular one with the given identity, before and after it was opened.
 * Bound: values of `VALUE_BYTES_MAX`, and for each database `CACHE_KIB` of page cache, a schema of `SCHEMA_BYTES_MAX` and
 * statements of `STEPS_MAX` instructions.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import { fstatSync, statSync } from 'node:fs';
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import { constants, DatabaseSync, type StatementSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { openInThread, type FileInThread } from '../../hashes/thread/hash-file.ts';
import type { DatabaseFile, FileIdentity } from './calls.ts';
import { refused } from './errors.ts';
import { requirePlainViews } from './plain-views.ts';
import { requireSearches, uniqueKeys, type UniqueKeys } from './query-plan.ts';
import { requireSmallSchema, SCHEMA_BYTES_MAX } from './schema-size.ts';

export const TILE_BYTES_MAX = 10 * 1024 * 1024;
/** A row has a tile and a few short columns. */
const VALUE_BYTES_MAX = TILE_BYTES_MAX + 64 * 1024;
const CACHE_KIB = 256;
/** Generated columns expand to any number of instructions; the queries of usual packs have less than 100. */
const STEPS_MAX = 5000;
const COLUMNS_MAX = 100;
/** Aggregates of our own queries; views have none. */
const AGGREGATES = new Set(['count', 'min', 'max']);

const TILE =
  'SELECT CAST(tile_data AS BLOB) AS tile FROM tiles WHERE zoom_level = ? AND tile_column = ? AND tile_row = ? LIMIT 1';

export interface OpenDatabase extends Disposable {
  readonly file: FileInThread;
  readonly db: DatabaseSync;
  readonly keys: UniqueKeys;
  readonly tile: StatementSync;
  /** Whether the open file is still the one that was verified. */
  isUnchanged(): boolean;
}

export function openDatabase({ path, identity }: Omit<DatabaseFile, 'id'>): OpenDatabase {
  const file = openInThread(path);
  let db: DatabaseSync | undefined;
  try {
    requireSmallSchema(file.fd);
    db = new DatabaseSync(`${pathToFileURL(path).href}?immutable=1&mode=ro`, {
      readOnly: true,
      defensive: true,
      limits: { length: VALUE_BYTES_MAX, sqlLength: SCHEMA_BYTES_MAX, column: COLUMNS_MAX, vdbeOp: STEPS_MAX },
    });
    const isUnchanged = (): boolean => isSame(identity, fstatSync(file.fd, { bigint: true }));
    // SQLite opened the path by itself: it must lead to the same file as the descriptor.
    if (!isUnchanged() || !isSame(identity, statSync(path, { bigint: true }))) {
      throw refused('the file was replaced while it was opened');
    }
    const { keys, tile } = prepare(db);
    const opened = db;
    return {
      file,
      db,
      keys,
      tile,
      isUnchanged,
      [Symbol.dispose]() {
        opened.close();
        file[Symbol.dispose]();
      },
    };
  } catch (error) {
    db?.close();
    file[Symbol.dispose]();
    throw error;
  }
}

function prepare(db: DatabaseSync): Pick<OpenDatabase, 'keys' | 'tile'> {
  db.exec(`PRAGMA cache_size = -${CACHE_KIB}; PRAGMA mmap_size = 0`);
  db.exec(
    'PRAGMA trusted_schema = OFF; PRAGMA automatic_index = OFF; PRAGMA temp_store = MEMORY; PRAGMA query_only = 1',
  );
  requirePlainViews(db);
  const keys = uniqueKeys(db);
  db.setAuthorizer(authorize);
  requireSearches(db, TILE, keys);
  return { keys, tile: db.prepare(TILE) };
}

/** `view` is the innermost view that needs the access; null for the query itself. */
function authorize(
  action: number,
  _first: string | null,
  second: string | null,
  _database: string | null,
  view: string | null,
): number {
  const { SQLITE_SELECT, SQLITE_READ, SQLITE_FUNCTION, SQLITE_OK, SQLITE_DENY } = constants;
  if (action === SQLITE_SELECT || action === SQLITE_READ) return SQLITE_OK;
  const isOwn = action === SQLITE_FUNCTION && view === null && AGGREGATES.has(second ?? '');
  return isOwn ? SQLITE_OK : SQLITE_DENY;
}

function isSame(
  identity: FileIdentity,
  { dev, ino, size, mtimeNs }: { dev: bigint; ino: bigint; size: bigint; mtimeNs: bigint },
): boolean {
  const { device, inode, mtime_ns } = identity;
  return device === dev && inode === ino && identity.size === size && mtime_ns === mtimeNs;
}
