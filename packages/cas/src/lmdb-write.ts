/**
 * Writes entries of an index to LMDB: on the thread that has it open, or on one of its own, whose module this is.
 *
 * Promise: one call is one transaction, durable when it returns. Entries come packed, 66 bytes each:
 *
 *     0        33       34
 *     | key     | is set | value (32), or zeros when the entry goes |
 *
 * Bound: one open index for each path, until `close`. Cancellation: none.
 */
import { open, type RootDatabase } from 'lmdb';
import { assert } from '@ron/kernel/core';

export const KEY_BYTES = 33;
export const VALUE_BYTES = 32;
export const ENTRY_BYTES = KEY_BYTES + 1 + VALUE_BYTES;
const META_KEY = Buffer.from([0]);

export type IndexDb = RootDatabase<Buffer, Buffer>;

export function openDb(path: string): IndexDb {
  return open<Buffer, Buffer>({
    path,
    noSubdir: false,
    encoding: 'binary',
    keyEncoding: 'binary',
    compression: false,
    // It batches by promises that nobody hears of: one that rejects, when the disk is full, would end the process.
    eventTurnBatching: false,
    maxReaders: 126,
  });
}

/** What stands beside the entries; undefined in a new index. */
export const readMeta = (db: IndexDb): Buffer | undefined => db.getBinary(META_KEY);

/** Not by LMDB's own queue of writes: when the disk is full, that never answers. */
export function writeEntries(db: IndexDb, packed: Uint8Array, meta: Uint8Array | undefined): void {
  assert(packed.length % ENTRY_BYTES === 0, 'entries are whole');
  const entries = Buffer.from(packed.buffer, packed.byteOffset, packed.length);
  db.transactionSync(() => {
    for (let at = 0; at < entries.length; at += ENTRY_BYTES) {
      const key = entries.subarray(at, at + KEY_BYTES);
      if (entries[at + KEY_BYTES] === 0) db.removeSync(key);
      else db.putSync(key, entries.subarray(at + KEY_BYTES + 1, at + ENTRY_BYTES));
    }
    if (meta !== undefined) db.putSync(META_KEY, Buffer.from(meta));
  });
}

/** Those that this thread has opened. */
const opened = new Map<string, IndexDb>();

/** `writeEntries` for callers on another thread. */
export function write(path: string, packed: Uint8Array, meta: Uint8Array | undefined): void {
  let db = opened.get(path);
  if (db === undefined) opened.set(path, (db = openDb(path)));
  writeEntries(db, packed, meta);
}

export async function close(path: string): Promise<void> {
  const db = opened.get(path);
  opened.delete(path);
  await db?.close();
}
