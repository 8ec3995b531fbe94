/**
 * The thread that writes to LMDB: no write or sync runs on the event loop.
 *
 * Contract: a transaction is on stable storage when `write` returns. A failed transaction changes nothing and returns its
 * system error number; the next one may succeed, unless LMDB reports that it cannot continue. LMDB's own asynchronous queue
 * is not used: it never answers on a full disk.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- this is a thread
import { chmodSync } from 'node:fs';
import { join } from 'node:path';
// oxlint-disable-next-line ron/no-raw-timers -- the kernel is not loaded in this thread
import { randomBytes, type KeyObject } from 'node:crypto';
import { open, type Database, type RootDatabase } from 'lmdb';
import { SEAL_SALT_BYTES, sealWith } from '../sealed/seal-bytes.ts';
import { recordContext } from './record-seal.ts';
import type { Change } from './record-store.ts';
import { LMDB_OPTIONS, type PackedChanges, type WriteResult } from './lmdb-messages.ts';

interface OpenedTables {
  readonly env: RootDatabase;
  readonly tables: Map<string, Database>;
  /** Undefined until the store is unlocked. */
  seal?: { readonly id: string; readonly master: KeyObject };
}

const opened = new Map<string, OpenedTables>();

/** Opens or creates the environment and its tables. */
export function openTables(dir: string, names: readonly string[]): WriteResult {
  return attempt(() => {
    if (opened.has(dir)) return;
    const env = open({ path: dir, ...LMDB_OPTIONS });
    chmodSync(join(dir, 'data.mdb'), 0o600);
    const tables = new Map(names.map((name) => [name, env.openDB({ name, encoding: 'binary', cache: false })]));
    opened.set(dir, { env, tables });
  });
}

export function readHeader(dir: string, table: string, key: string): Uint8Array | undefined {
  return opened.get(dir)!.tables.get(table)!.getBinary(key);
}

/** From now on `write` seals records with this key. */
export function setSeal(dir: string, id: string, master: KeyObject): void {
  opened.get(dir)!.seal = { id, master };
}

/** Seals and writes records in one transaction. */
export function write(dir: string, { places, ends, bytes }: PackedChanges): WriteResult {
  const seal = tablesOf(dir).seal!;
  let start = 0;
  const sealed = Array.from(ends, (end, at): Change => {
    const table = places[2 * at]!;
    const key = places[2 * at + 1]!;
    if (end < 0) return { table, key, value: undefined };
    const salt = randomBytes(SEAL_SALT_BYTES);
    const value = sealWith(seal.master, salt, recordContext(seal.id, table, key), bytes.subarray(start, end));
    start = end;
    return { table, key, value };
  });
  bytes.fill(0);
  return writePlain(dir, sealed);
}

export function writePlain(dir: string, changes: readonly Change[]): WriteResult {
  const { env, tables } = tablesOf(dir);
  return attempt(() => {
    env.transactionSync(() => {
      for (const { table, key, value } of changes) {
        if (value === undefined) tables.get(table)!.removeSync(key);
        else tables.get(table)!.putSync(key, value);
      }
    });
  });
}

export async function closeTables(dir: string): Promise<void> {
  const { env } = opened.get(dir) ?? {};
  opened.delete(dir);
  await env?.close();
}

/** Throws in a thread that replaced one which died. */
function tablesOf(dir: string): OpenedTables {
  const found = opened.get(dir);
  if (found === undefined) throw new Error('the thread that had opened the store died');
  return found;
}

function attempt(work: () => void): WriteResult {
  try {
    work();
    return undefined;
  } catch (error) {
    const { code, message } = error as { code?: unknown; message: string };
    return { errno: typeof code === 'number' ? code : 0, message };
  }
}
