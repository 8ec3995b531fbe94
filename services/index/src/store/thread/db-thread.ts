/**
 * The code of the database threads. [index I-7] Only these files call SQLite.
 *
 * Contract: `runBatch` answers each call with its value or its error. The calls of the writer share one transaction; a call
 * that is refused changes nothing, and the others are committed. If the disk fails, all calls of the batch fail and none has
 * an effect. The thread opens the database when it needs it, also after it replaced a thread that died.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import { accessSync, constants } from 'node:fs';
import { join, dirname } from 'node:path';
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import type { DatabaseSync } from 'node:sqlite';
import { assert, RonError } from '@ron/kernel/core';
import { tryLock } from '@ron/log/file-lock';
import {
  SYNCED,
  type BatchResult,
  type CallResult,
  type DatabaseInit,
  type DatabaseState,
  type OpenedDatabase,
  type Quotas,
  type Reads,
  type ThreadCall,
  type Writes,
} from './calls.ts';
import { dhtReads, dhtWrites } from './dht-entries.ts';
import { callError, sqliteCode } from './errors.ts';
import { nameReads } from './name-reads.ts';
import { nameWrites } from './name-writes.ts';
import { objectReads, objectWrites } from './objects.ts';
import { moveAside, openMemory, openReader, openWriter, type MovedAside } from './open-database.ts';
import { openParties } from './parties.ts';

type Functions = Record<string, (...args: never[]) => unknown>;

interface Opened {
  readonly db: DatabaseSync;
  readonly generation: number;
  readonly reads: Reads;
  /** Undefined in a reader. */
  readonly writes: Writes | undefined;
  readonly readState: () => DatabaseState;
  readonly movedAside: MovedAside;
}

let opened: Opened | undefined;
let lock: Disposable | undefined;
let quotas: Quotas;

/** Opens the database. The writer reports a file that it moved aside. */
export function open(init: DatabaseInit): OpenedDatabase | { readonly error: ReturnType<typeof callError> } {
  try {
    const { readState, movedAside } = databaseOf(init);
    return { ...readState(), movedAside };
  } catch (error) {
    return { error: callError(error, init.path) };
  }
}

/** Moves a damaged database aside and creates a new one. Only the writer. */
export function rebuild(
  init: DatabaseInit,
  why: string,
): OpenedDatabase | { readonly error: ReturnType<typeof callError> } {
  try {
    closeDatabase();
    const moved = init.path === undefined ? undefined : moveAside(init.path, why);
    return { ...databaseOf(init).readState(), movedAside: moved };
  } catch (error) {
    return { error: callError(error, init.path) };
  }
}

export function runBatch(init: DatabaseInit, calls: readonly ThreadCall[]): BatchResult {
  try {
    const database = databaseOf(init);
    if (database.writes === undefined)
      return { results: calls.map((call) => read(database, init, call)), state: undefined };
    return { results: write(database, init, calls), state: database.readState() };
  } catch (error) {
    const failed = { error: callError(error, init.path) };
    return { results: calls.map(() => failed), state: undefined };
  }
}

export function close(): void {
  closeDatabase();
  lock?.[Symbol.dispose]();
  lock = undefined;
}

function read({ reads }: Opened, { path }: DatabaseInit, { fn, args }: ThreadCall): CallResult {
  try {
    return { value: functionOf(reads, fn)(...(args as never[])) };
  } catch (error) {
    return { error: callError(error, path) };
  }
}

/** Throws if the transaction failed as a whole. */
function write({ db, reads, writes }: Opened, { path }: DatabaseInit, calls: readonly ThreadCall[]): CallResult[] {
  const functions = { ...reads, ...writes! };
  const isSynced = path !== undefined && calls.some(({ fn }) => SYNCED.has(fn));
  if (isSynced) db.exec('PRAGMA synchronous = FULL');
  db.exec('BEGIN IMMEDIATE');
  try {
    const results = calls.map((call) => attempt(db, functions, path, call));
    db.exec('COMMIT');
    return results;
  } catch (error) {
    if (db.isTransaction) db.exec('ROLLBACK');
    throw error;
  } finally {
    if (isSynced) db.exec('PRAGMA synchronous = NORMAL');
  }
}

/** A refused call is undone alone. An error of SQLite ends the batch: it may have ended the transaction. */
function attempt(db: DatabaseSync, functions: object, path: string | undefined, { fn, args }: ThreadCall): CallResult {
  db.exec('SAVEPOINT call');
  try {
    const value = functionOf(functions, fn)(...(args as never[]));
    db.exec('RELEASE call');
    return { value };
  } catch (error) {
    if (sqliteCode(error) !== undefined) throw error;
    db.exec('ROLLBACK TO call; RELEASE call');
    return { error: callError(error, path) };
  }
}

function functionOf(functions: object, fn: string): (...args: never[]) => unknown {
  const found = Object.hasOwn(functions, fn) ? (functions as Functions)[fn] : undefined;
  assert(found !== undefined, `the database has a call ${fn}`);
  return found;
}

function databaseOf(init: DatabaseInit): Opened {
  quotas = init.quotas;
  if (opened?.generation === init.generation) return opened;
  closeDatabase();
  opened = openDatabase(init);
  return opened;
}

function closeDatabase(): void {
  opened?.db.close();
  opened = undefined;
}

function openDatabase({ path, role, generation }: DatabaseInit): Opened {
  if (path === undefined) return prepared(openMemory(), generation, true, undefined);
  if (role === 'reader') return prepared(openReader(path), generation, false, undefined);
  lock ??= lockOf(dirname(path));
  const { db, movedAside } = openWriter(path);
  return prepared(db, generation, true, movedAside);
}

function prepared(db: DatabaseSync, generation: number, isWriter: boolean, movedAside: MovedAside): Opened {
  const reads = { ...nameReads(db), ...objectReads(db), ...dhtReads(db) };
  const state = db.prepare('SELECT epoch, applied, applied_leaf FROM state WHERE id = 1');
  const readState = (): DatabaseState => {
    const row = state.get() as { epoch: string; applied: number; applied_leaf: Uint8Array | null };
    return { epoch: row.epoch, applied: { size: row.applied, leaf: row.applied_leaf ?? undefined } };
  };
  return { db, generation, reads, writes: isWriter ? allWrites(db) : undefined, readState, movedAside };
}

function allWrites(db: DatabaseSync): Writes {
  const parties = openParties(db, () => quotas);
  return { ...nameWrites(db, () => quotas), ...objectWrites(db, parties, () => quotas), ...dhtWrites(db, parties) };
}

function lockOf(dir: string): Disposable {
  // SQLite would not say that the disk is read-only.
  accessSync(dir, constants.W_OK);
  const held = tryLock(join(dir, 'lock'));
  if (held === undefined) throw new RonError('conflict', `${dir} is in use by another process`);
  return held;
}
