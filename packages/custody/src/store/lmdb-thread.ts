/**
 * The thread that writes to LMDB: no write or sync runs on the event loop.
 *
 * Contract: a transaction is on stable storage when `write` returns. A failed transaction changes nothing and returns its
 * system error number; the next one may succeed. LMDB's own asynchronous queue is not used: it never answers on a full disk.
 */
import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import type { KeyObject } from 'node:crypto';
import { open, type Database, type RootDatabase } from 'lmdb';
import { recordContext, sealBytes } from './record-seal.ts';
import type { Change } from './record-store.ts';

/** Address space, not memory: LMDB maps the file, which grows as needed. */
const MAP_BYTES = 2 ** 38;
const TABLES_MAX = 16;

export interface WriteInit {
  readonly dir: string;
  readonly id: string;
  readonly master: KeyObject;
}

/** Undefined: written. Otherwise the number of the system error, or LMDB's. */
export type WriteResult = { readonly errno: number; readonly message: string } | undefined;

export const LMDB_OPTIONS = {
  noSubdir: false,
  mapSize: MAP_BYTES,
  maxDbs: TABLES_MAX,
  // A commit returns after its data is on stable storage.
  overlappingSync: false,
  encoding: 'binary',
  cache: false,
  permissionsMode: 0o600,
} as const;

const opened = new Map<string, { readonly env: RootDatabase; readonly tables: Map<string, Database> }>();

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

/** Seals and writes records in one transaction. */
export function write({ dir, id, master }: WriteInit, changes: readonly Change[]): WriteResult {
  const sealed = changes.map(({ table, key, value }): Change => {
    if (value === undefined) return { table, key, value };
    return { table, key, value: sealBytes(master, recordContext(id, table, key), value) };
  });
  return writePlain(dir, sealed);
}

export function writePlain(dir: string, changes: readonly Change[]): WriteResult {
  return attempt(() => {
    const { env, tables } = opened.get(dir)!;
    env.transactionSync(() => {
      for (const { table, key, value } of changes) {
        if (value === undefined) tables.get(table)!.removeSync(key);
        else tables.get(table)!.putSync(key, value as Buffer);
      }
    });
  });
}

export async function closeTables(dir: string): Promise<void> {
  const { env } = opened.get(dir) ?? {};
  opened.delete(dir);
  await env?.close();
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
