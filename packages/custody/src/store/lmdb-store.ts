/**
 * Sealed records in LMDB: `data.mdb` in a directory.
 *
 * Contract: as `RecordStore`. Each value is sealed for its store, table and key; a record that was modified, or moved from
 * elsewhere, does not open (`integrity`). Names of tables and keys are in plaintext in a file with mode 0600. Writes and
 * syncs run in a thread; reads come from the mapped file, in memory after `prefetch`. One process at a time opens it.
 * Bound: the address space that is mapped, 256 GiB. Overflow: `storage_full`.
 * Cancellation: as `RecordStore`. The outcome of a write that takes longer than `write_ms_max` is unknown.
 * Failure: the store fails for good (`failed`) if LMDB lost track of its meta page, if a write takes too long, and if the
 * thread dies. Its lock is then kept until the process ends, because the thread may still write.
 */
import { hkdfSync, type KeyObject } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { BlockingPool, Deadline, isRonError, NEVER, orAborted, RonError } from '@ron/kernel';
import { diskError, makeDirectory, tryLock } from '@ron/log';
import type { Database, RootDatabase } from 'lmdb';
import { KEK_BYTES, sealBytes, unsealBytes, type Unlock } from '../sealed/sealer.ts';
import { requireWhole } from './lmdb-file.ts';
import { LMDB_OPTIONS, type PackedChanges, type WriteResult } from './lmdb-messages.ts';
import { recordContext } from './record-seal.ts';
import { BatchedStore, type Change, type RangeInit, type RangeRecord } from './record-store.ts';
import {
  BOXES_MAX,
  newHeader,
  onlyBoxOf,
  openHeader,
  opensWith,
  parseHeader,
  withBox,
  type StoreHeader,
} from './store-header.ts';

export interface LmdbStoreInit {
  readonly dir: string;
  readonly tables: readonly string[];
  readonly unlock: Unlock;
  readonly signal: AbortSignal;
  /** The limit of one transaction. Default 30 000. */
  readonly write_ms_max?: number;
}

const WRITE_MS_MAX = 30_000;
const CLOSE_MS_MAX = 1000;
const HEADER_TABLE = 'store';
const HEADER_KEY = 'header';
/** A write and a change of the header. */
const CALLS_MAX = 8;
/** A disk with less is full: LMDB reports a short write as an input/output error. */
const FULL_BYTES = 1024 * 1024;
const ERRNO = { EIO: 5, ENOSPC: 28, EROFS: 30, EACCES: 13, EDQUOT: 122, MAP_FULL: -30_792 } as const;
/** LMDB needs a new process, for example because its meta page was not written. Such errors do not always have a number. */
const TERMINAL = /MDB_PANIC|MDB_BAD_TXN/;
/** A page of the file is damaged. Other records can still be read. */
const DAMAGED = /MDB_CORRUPTED|MDB_PAGE_NOTFOUND/;

interface Opened {
  readonly dir: string;
  readonly lock: Disposable;
  readonly thread: BlockingPool;
  readonly env: RootDatabase;
  readonly tables: ReadonlyMap<string, Database>;
  readonly header: StoreHeader;
  readonly master: KeyObject;
}

export class LmdbStore extends BatchedStore {
  readonly #opened: Opened;
  readonly #write_ms_max: number;
  /** The thread died or does not answer. */
  #isThreadLost = false;
  #header: StoreHeader;
  /** Counting is not free: LMDB answers with the statistics of three trees. */
  readonly #counts = new Map<string, number>();

  private constructor(opened: Opened, write_ms_max = WRITE_MS_MAX) {
    super();
    this.#write_ms_max = write_ms_max;
    this.#opened = opened;
    this.#header = opened.header;
  }

  static async open(init: LmdbStoreInit): Promise<LmdbStore> {
    const { dir, signal } = init;
    signal.throwIfAborted();
    await makeDirectory(dir).catch(rethrow);
    const lock = lockOf(dir);
    const thread = new BlockingPool('store.write', {
      threads: 1,
      queue_max: CALLS_MAX,
      module: new URL('./lmdb-thread.ts', import.meta.url),
    });
    try {
      return new LmdbStore(await openAll(init, lock, thread), init.write_ms_max);
    } catch (error) {
      await thread.run('closeTables', [dir], NEVER).catch(() => undefined);
      await thread.close();
      lock[Symbol.dispose]();
      throw error;
    }
  }

  get(table: string, key: string): Uint8Array | undefined {
    const sealed = this.#read(() => this.#table(table).getBinary(key));
    return sealed === undefined ? undefined : this.#unsealed(table, key, sealed);
  }

  has(table: string, key: string): boolean {
    return this.#read(() => this.#table(table).doesExist(key));
  }

  count(table: string): number {
    const known = this.#counts.get(table);
    if (known !== undefined) return known;
    const { entryCount } = this.#read(() => this.#table(table).getStats() as { entryCount: number });
    this.#counts.set(table, entryCount);
    return entryCount;
  }

  range(table: string, { start, end, limit }: RangeInit): RangeRecord[] {
    const found = this.#read(() => [...this.#table(table).getRange({ start, end, limit })]);
    return found.map(({ key, value }) => {
      const name = key as string;
      return { key: name, value: this.#unsealed(table, name, value as Uint8Array) };
    });
  }

  async prefetch(table: string, keys: readonly string[], signal: AbortSignal): Promise<void> {
    await orAborted(this.#table(table).prefetch([...keys]), signal);
  }

  /** Seals bytes that are part of a record, so that a record in memory holds no secret. */
  seal(context: string, plaintext: Uint8Array): Uint8Array {
    return sealBytes(this.#opened.master, this.#partContext(context), plaintext);
  }

  /** The caller zeroes the result. */
  unseal(context: string, sealed: Uint8Array): Uint8Array {
    return unsealBytes(this.#opened.master, this.#partContext(context), sealed);
  }

  /** A key for files beside the store. It stays the same when the key or passphrase of the store changes. */
  kekFor(purpose: string): Uint8Array {
    const info = `ron-store/file-kek/v1\n${this.#header.id}\n${purpose}`;
    return new Uint8Array(hkdfSync('sha256', this.#opened.master, '', info, KEK_BYTES));
  }

  /** Lets another key or passphrase open the store, besides the present one. */
  async addUnlock(unlock: Unlock, signal: AbortSignal): Promise<void> {
    const { boxes_b64 } = this.#header;
    if (boxes_b64.length >= BOXES_MAX) {
      throw new RonError('conflict', 'the store already opens with two keys or passphrases: drop one of them first');
    }
    await this.#replaceHeader(await withBox(this.#header, unlock, this.#opened.master, signal));
  }

  /** Whether this key or passphrase opens the store. */
  async opensWith(unlock: Unlock, signal: AbortSignal): Promise<boolean> {
    return await opensWith(this.#header, unlock, signal);
  }

  /** From now on only this key or passphrase opens the store. Older copies of the file still open with the others. */
  async dropOtherUnlocks(unlock: Unlock, signal: AbortSignal): Promise<void> {
    await this.#replaceHeader(await onlyBoxOf(this.#header, unlock, signal));
  }

  override async close(): Promise<void> {
    await super.close();
    const { env, thread, lock, dir } = this.#opened;
    using due = Deadline.after('store.close', CLOSE_MS_MAX);
    if (!this.#isThreadLost)
      await thread.run('closeTables', [dir], due.signal).catch(() => (this.#isThreadLost = true));
    await thread.close();
    // LMDB would wait for the thread.
    if (this.#isThreadLost) return;
    await env.close();
    lock[Symbol.dispose]();
  }

  protected async write(changes: readonly Change[], added: ReadonlyMap<string, number>): Promise<void> {
    const { dir, env } = this.#opened;
    const packed = packedChanges(changes);
    const counts = [...added].map(([table, count]) => [table, this.count(table) + count] as const);
    await this.#send('write', [dir, packed], [packed.bytes.buffer as ArrayBuffer]);
    for (const [table, count] of counts) this.#counts.set(table, count);
    // The next read begins a transaction that sees these changes.
    env.resetReadTxn();
  }

  async #replaceHeader(header: StoreHeader): Promise<void> {
    await this.#send('writePlain', [this.#opened.dir, [headerChange(header)]]);
    this.#header = header;
  }

  async #send(
    fn: 'write' | 'writePlain',
    args: readonly unknown[],
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<void> {
    const { dir, env, thread } = this.#opened;
    using due = Deadline.after('store.write', this.#write_ms_max);
    const answer = await thread.run<WriteResult>(fn, args, due.signal, transfer).catch((cause: unknown) => {
      this.#isThreadLost = true;
      const why = due.signal.aborted
        ? `a write did not end within ${this.#write_ms_max} ms`
        : 'the writing thread died';
      throw this.fail(new RonError('not_ready', `${dir} failed: ${why}`, { cause }));
    });
    if (answer === undefined) return;
    // After a failed write of the meta page LMDB refuses every new transaction, even one that reads.
    env.resetReadTxn();
    this.has(HEADER_TABLE, HEADER_KEY);
    if (TERMINAL.test(answer.message)) throw this.fail(errorOf(dir, answer));
    await requireWritten(dir, answer);
  }

  #read<A>(read: () => A): A {
    try {
      return read();
    } catch (error) {
      if (isRonError(error)) throw error;
      const { message } = error as Error;
      const reason = errorOf(this.#opened.dir, { errno: ERRNO.EIO, message });
      throw TERMINAL.test(message) ? this.fail(reason) : reason;
    }
  }

  #table(name: string): Database {
    const table = this.#opened.tables.get(name);
    if (table === undefined) throw new RonError('internal', `assertion failed: the store has a table ${name}`);
    return table;
  }

  #unsealed(table: string, key: string, sealed: Uint8Array): Uint8Array {
    try {
      return unsealBytes(this.#opened.master, recordContext(this.#header.id, table, key), sealed);
    } catch (error) {
      if (!isRonError(error)) throw error;
      throw new RonError('integrity', `a record of ${join(this.#opened.dir, 'data.mdb')} (${table}) was modified`);
    }
  }

  #partContext(context: string): Uint8Array {
    return recordContext(this.#header.id, 'part', context);
  }
}

async function openAll(init: LmdbStoreInit, lock: Disposable, thread: BlockingPool): Promise<Opened> {
  const { dir, unlock, signal } = init;
  await requireWhole(dir);
  const names = [HEADER_TABLE, ...init.tables];
  await requireWritten(dir, await thread.run('openTables', [dir, names], NEVER));
  const path = join(dir, 'data.mdb');
  const found = (await thread.run('readHeader', [dir, HEADER_TABLE, HEADER_KEY], NEVER)) as Uint8Array | undefined;
  const opened =
    found === undefined
      ? await newHeader(unlock, signal)
      : await openHeader(path, parseHeader(path, found), unlock, signal);
  if (found === undefined) {
    await requireWritten(dir, await thread.run('writePlain', [dir, [headerChange(opened.header)]], NEVER));
  }
  const { open } = await import('lmdb');
  // The thread has already created it: this maps the file.
  const env = open({ path: dir, ...LMDB_OPTIONS });
  const tables = new Map(names.map((name) => [name, env.openDB({ name, encoding: 'binary', cache: false })]));
  await thread.run('setSeal', [dir, opened.header.id, opened.master], NEVER);
  return { dir, lock, thread, env, tables, ...opened };
}

const headerChange = (header: StoreHeader): Change => ({
  table: HEADER_TABLE,
  key: HEADER_KEY,
  value: Buffer.from(JSON.stringify(header)),
});

function packedChanges(changes: readonly Change[]): PackedChanges {
  const ends = new Float64Array(changes.length);
  const bytes = new Uint8Array(changes.reduce((sum, { value }) => sum + (value?.length ?? 0), 0));
  let end = 0;
  changes.forEach(({ value }, at) => {
    if (value !== undefined) bytes.set(value, end);
    end += value?.length ?? 0;
    ends[at] = value === undefined ? -1 : end;
  });
  return { places: changes.flatMap(({ table, key }) => [table, key]), ends, bytes };
}

function lockOf(dir: string): Disposable {
  const lock = tryLock(join(dir, 'lock'));
  if (lock === undefined) throw new RonError('conflict', `${dir} is in use by another process`);
  return lock;
}

/** Throws the reason why a transaction was not written. */
async function requireWritten(dir: string, answer: WriteResult): Promise<void> {
  if (answer === undefined) return;
  const free = await statfs(dir).catch(() => undefined);
  const isShort = answer.errno === ERRNO.EIO && free !== undefined && free.bavail * free.bsize < FULL_BYTES;
  throw errorOf(dir, isShort ? { ...answer, errno: ERRNO.ENOSPC } : answer);
}

function errorOf(dir: string, { errno, message }: NonNullable<WriteResult>): RonError {
  const cause = new Error(message);
  if (TERMINAL.test(message)) return new RonError('not_ready', `${dir} failed: ${message}`, { cause });
  if (DAMAGED.test(message)) return new RonError('integrity', `${join(dir, 'data.mdb')} is damaged: ${message}`);
  const isFull = ([ERRNO.ENOSPC, ERRNO.EDQUOT, ERRNO.MAP_FULL] as number[]).includes(errno);
  const [code = 'EIO'] = Object.entries(ERRNO).find(([, number]) => number === errno) ?? [];
  return diskError(Object.assign(cause, { code: isFull ? 'ENOSPC' : code }));
}

function rethrow(error: unknown): never {
  throw diskError(error);
}
