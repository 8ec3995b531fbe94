/**
 * Opens the database in a thread.
 *
 * Contract: the writer creates a missing database. It moves a damaged or foreign file aside (`index.db.damaged-<time>`) and
 * creates a new one with a new epoch; of such files the newest `ASIDE_MAX` are kept. A database of a newer version is refused
 * and left unchanged. Only cheap checks run here: damaged pages are detected when they are read.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import { closeSync, existsSync, fsyncSync, openSync, readdirSync, renameSync, rmSync } from 'node:fs';
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import { DatabaseSync } from 'node:sqlite';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { RonError, sched } from '@ron/kernel/core';
import { isDamage } from './errors.ts';
import type { OpenedDatabase } from './calls.ts';
import { APPLICATION_ID, SCHEMA, SCHEMA_VERSION } from './schema.ts';

const BUSY_MS = 500;
/** Moved files that are kept. */
const ASIDE_MAX = 4;
const CACHE_KIB = 16 * 1024;
const WAL_BYTES_MAX = 64 * 1024 * 1024;
/** 16 MiB: each checkpoint syncs twice, and random inserts change a page each. */
const CHECKPOINT_PAGES = 4096;
const EPOCH_BYTES = 16;
const SIDE_FILES = ['-wal', '-shm', '-journal'];

export type MovedAside = OpenedDatabase['movedAside'];

export const newEpoch = (): string => sched.randomBytes(EPOCH_BYTES).toHex();

export function openMemory(): DatabaseSync {
  const db = new DatabaseSync(':memory:');
  db.exec('PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF');
  createSchema(db);
  return db;
}

export function openReader(path: string): DatabaseSync {
  // Never creates the file.
  const db = new DatabaseSync(`${pathToFileURL(path).href}?mode=rw`, { timeout: BUSY_MS });
  db.exec(`PRAGMA query_only = 1; PRAGMA cache_size = -${CACHE_KIB}; PRAGMA temp_store = MEMORY`);
  return db;
}

/** The caller holds the lock of the directory. */
export function openWriter(path: string): { db: DatabaseSync; movedAside: MovedAside } {
  const why = refusalOf(path);
  const movedAside = why === undefined ? undefined : moveAside(path, why);
  return { db: openOrCreate(path), movedAside };
}

/** Moves the file and its side files out of the way; the name says when. */
export function moveAside(path: string, why: string): MovedAside {
  const dir = dirname(path);
  const name = `${basename(path)}.damaged-${new Date(sched.wall_ms()).toISOString().replaceAll(/[:.]/g, '-')}`;
  for (const suffix of ['', ...SIDE_FILES]) {
    if (existsSync(path + suffix)) renameSync(path + suffix, join(dir, name + suffix));
  }
  const older = readdirSync(dir)
    .filter((file) => /\.damaged-[0-9TZ-]+$/.test(file))
    .toSorted()
    .slice(0, -ASIDE_MAX);
  for (const file of older) for (const suffix of ['', ...SIDE_FILES]) rmSync(join(dir, file + suffix), { force: true });
  return { path: join(dir, name), why };
}

/** Why the file cannot be used; undefined if it is usable, empty or missing. Throws for a newer version and a failing disk. */
function refusalOf(path: string): string | undefined {
  if (!existsSync(path)) return undefined;
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(path, { timeout: BUSY_MS });
    const { application_id } = db.prepare('PRAGMA application_id').get() as { application_id: number };
    const { user_version } = db.prepare('PRAGMA user_version').get() as { user_version: number };
    const { tables } = db.prepare('SELECT count(*) AS tables FROM sqlite_schema').get() as { tables: number };
    if (tables === 0) return undefined;
    if (application_id !== APPLICATION_ID) return 'another program made it';
    if (user_version > SCHEMA_VERSION) throw newerVersion(path, user_version);
    const state = db.prepare('SELECT epoch, applied FROM state WHERE id = 1').get();
    return state === undefined ? 'its state is missing' : undefined;
  } catch (error) {
    if (isDamage(error)) return `it is damaged (${(error as Error).message})`;
    throw error;
  } finally {
    db?.close();
  }
}

function newerVersion(path: string, version: number): RonError {
  const message = `${path} has version ${version} and this program reads version ${SCHEMA_VERSION}: install the newer program, or move the file away to rebuild it`;
  return new RonError('conflict', message);
}

function openOrCreate(path: string): DatabaseSync {
  // SQLite gives its side files the mode of the database.
  const file = openSync(path, 'a', 0o600);
  fsyncSync(file);
  closeSync(file);
  const db = new DatabaseSync(path, { timeout: BUSY_MS });
  try {
    db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = ${WAL_BYTES_MAX}`);
    db.exec(`PRAGMA cache_size = -${CACHE_KIB}; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF`);
    db.exec(`PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
    const { tables } = db.prepare('SELECT count(*) AS tables FROM sqlite_schema').get() as { tables: number };
    if (tables === 0) createSchema(db);
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

/** In one transaction: a killed process leaves an empty file or a complete schema. */
function createSchema(db: DatabaseSync): void {
  db.exec('BEGIN IMMEDIATE');
  try {
    db.exec(SCHEMA);
    db.prepare('INSERT INTO state VALUES (1, ?, 0, NULL, 0, 0, 0, 0, 0)').run(newEpoch());
    db.exec('COMMIT');
  } catch (error) {
    if (db.isTransaction) db.exec('ROLLBACK');
    throw error;
  }
}
