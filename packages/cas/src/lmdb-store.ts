/**
 * The places of records in LMDB.
 *
 * Promise: what `store` was given is there after a crash when it has ended; before, a part of it may be. An index that
 * cannot be trusted is thrown away at open: the log has it all.
 * Bound: the disk; one thread for each index that many entries are stored in, which ends when none came for a while.
 * Cancellation: none; calls end by themselves.
 *
 * LMDB pages carry no checksums: what an entry says is checked against the record it points to, at every read. And a
 * damaged tree can make LMDB end the process: so an index that was not closed in order is walked through at open, under a
 * mark that makes the start after such an end begin anew.
 */
import { closeSync, existsSync, mkdirSync, openSync, readSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { assert, BlockingPool, NEVER, sched, type Timer } from '@ron/kernel';
import { ID_BYTES } from '@ron/log';
import { ENTRY_BYTES, KEY_BYTES, openDb, readMeta, VALUE_BYTES, writeEntries, type IndexDb } from './lmdb-write.ts';
import type { Applied, Changes, Place, PlaceStore } from './place-index.ts';

const FORMAT = 2;
/** The first page of an LMDB file: where its mark, page size, last page and transaction number lie. */
const LMDB_META = { magic: 24, page_bytes: 48, last_page: 144, transaction: 152, bytes: 160 } as const;
const LMDB_MAGIC = 0xbe_ef_c0_de;
/** Stored in one go on this thread, which takes two or three milliseconds and two syncs. */
const BATCH_ENTRIES = 1024;
/**
 * More than this go to a thread of their own, in larger batches: nobody waits behind them. A thread takes 30 MiB: a large upload
 * alone does not need one.
 */
export const HERE_ENTRIES_MAX = 16_384;
const THREAD_BATCH_ENTRIES = 4096;
const THREAD_IDLE_MS = 30_000;
const THREAD_MODULE = new URL('./lmdb-write.ts', import.meta.url);

export interface OpenedStore {
  readonly store: LmdbStore;
  /** Why what was there has been thrown away. */
  readonly rebuilt: string | undefined;
}

function encode(place: Place, into: Buffer, at: number): void {
  into.writeUInt32LE(place.segment, at);
  into.writeUInt32LE(place.offset, at + 4);
  into.writeUInt32LE(place.payload_bytes, at + 8);
  into.writeUInt16LE(place.meta_bytes, at + 12);
  into.writeUInt8(place.type, at + 14);
  into.writeUInt8(place.isDamaged === true ? 1 : 0, at + 15);
  into.writeDoubleLE(place.seq, at + 16);
  into.writeUInt32LE(place.time_s, at + 24);
}

function pack(keys: readonly string[], changes: Changes): Buffer<ArrayBuffer> {
  const packed = Buffer.from(new ArrayBuffer(keys.length * ENTRY_BYTES));
  for (const [index, key] of keys.entries()) {
    assert(key.length === KEY_BYTES, 'a key is a table and an id');
    const at = index * ENTRY_BYTES;
    packed.write(key, at, 'latin1');
    const place = changes.get(key);
    if (place === undefined) continue;
    packed[at + KEY_BYTES] = 1;
    encode(place, packed, at + KEY_BYTES + 1);
  }
  return packed;
}

function decode(bytes: Buffer): Place | undefined {
  if (bytes.length !== VALUE_BYTES) return undefined;
  const place = {
    segment: bytes.readUInt32LE(0),
    offset: bytes.readUInt32LE(4),
    payload_bytes: bytes.readUInt32LE(8),
    meta_bytes: bytes.readUInt16LE(12),
    type: bytes.readUInt8(14),
    seq: bytes.readDoubleLE(16),
    time_s: bytes.readUInt32LE(24),
  };
  return bytes[15] === 0 ? place : { ...place, isDamaged: true };
}

/** How a database of LMDB makes keys of bytes. */
interface KeyReader {
  readKey: (bytes: Uint8Array, start: number, end: number) => Buffer;
}

const NO_KEY = Buffer.alloc(0);

export class LmdbStore implements PlaceStore {
  readonly #db: IndexDb;
  readonly #path: string;
  #thread: BlockingPool | undefined;
  #threadIdle: Timer | undefined;
  #applied: Applied | undefined;
  #closed = false;

  private constructor(path: string) {
    this.#db = openDb(path);
    this.#path = path;
    this.#applied = this.#readApplied();
  }

  /** Opens the index at `path`; one that cannot be trusted is deleted. */
  static open(path: string): OpenedStore {
    const distrust = whyNotTrusted(path);
    if (distrust !== undefined) return LmdbStore.#anew(path, distrust);
    try {
      return LmdbStore.#openTrusted(path);
    } catch (error) {
      return LmdbStore.#anew(path, error instanceof Error ? error.message : String(error));
    }
  }

  /** Throws the index away: the log tells that it cannot be right. */
  async startAnew(): Promise<LmdbStore> {
    await this.#db.close();
    return LmdbStore.#anew(this.#path, '').store;
  }

  static #openTrusted(path: string): OpenedStore {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    const isFirst = !existsSync(dataFile(path));
    // Damage inside makes LMDB end the process. The mark stays behind then, and the next start begins anew.
    writeFileSync(openingMark(path), '');
    const store = new LmdbStore(path);
    if (!existsSync(cleanMark(path))) store.#walk();
    rmSync(cleanMark(path), { force: true });
    rmSync(openingMark(path));
    if (store.applied !== undefined || isFirst) return { store, rebuilt: undefined };
    store.#db.close().catch(() => undefined);
    return LmdbStore.#anew(path, 'it does not say how far it got');
  }

  static #anew(path: string, why: string): OpenedStore {
    rmSync(path, { recursive: true, force: true });
    rmSync(openingMark(path), { force: true });
    rmSync(cleanMark(path), { force: true });
    mkdirSync(path, { recursive: true, mode: 0o700 });
    return { store: new LmdbStore(path), rebuilt: why };
  }

  get applied(): Applied | undefined {
    return this.#applied;
  }

  get(key: string): Place | undefined {
    const bytes = this.#db.getBinaryFast(Buffer.from(key, 'latin1'));
    return bytes === undefined ? undefined : decode(bytes);
  }

  *range(low: string, high: string): Generator<[key: Buffer, place: Place], void, void> {
    const bounds = { start: Buffer.from(low, 'latin1'), end: Buffer.from(high, 'latin1') };
    for (const { key, value } of this.#db.getRange(bounds)) {
      const place = decode(value);
      if (place !== undefined) yield [key, place];
    }
  }

  /**
   * LMDB hands out each key as a buffer of its own, which takes longer than finding it. It makes them by a function of the
   * database: for this walk that one copies the id, and the buffer is not made.
   */
  copyIds(low: string, high: string, into: Buffer): number {
    const limit = Math.floor(into.length / ID_BYTES);
    const reader = this.#db as unknown as KeyReader;
    const { readKey } = reader;
    let count = 0;
    reader.readKey = (bytes, start) => {
      // By hand: copying so few bytes by a call takes longer.
      for (let byte = 0; byte < ID_BYTES; byte++) into[count * ID_BYTES + byte] = bytes[start + 1 + byte]!;
      count += 1;
      return NO_KEY;
    };
    try {
      const range = { start: Buffer.from(low, 'latin1'), end: Buffer.from(high, 'latin1'), limit };
      let keys = 0;
      for (const key of this.#db.getKeys(range)) keys += key === NO_KEY ? 1 : 0;
      assert(keys === count, 'LMDB reads keys by readKey');
      return count;
    } finally {
      reader.readKey = readKey;
    }
  }

  /**
   * In several transactions: what was stored of a failed one does no harm, since `applied`, which comes with the last one,
   * decides how much of the log is read again.
   */
  async store(changes: Changes, applied: Applied): Promise<void> {
    const keys = neighboursTogether(changes.keys());
    const isMuch = keys.length > HERE_ENTRIES_MAX;
    const batch = isMuch ? THREAD_BATCH_ENTRIES : BATCH_ENTRIES;
    for (let at = 0; at === 0 || at < keys.length; at += batch) {
      if (this.#closed) throw new Error('the index is closed');
      const packed = pack(keys.slice(at, at + batch), changes);
      const meta = at + batch < keys.length ? undefined : encodeApplied(applied);
      if (isMuch) await this.#writeOnThread(packed, meta);
      else writeEntries(this.#db, packed, meta);
      // Others get a turn between.
      await sched.pause('index.store');
    }
    this.#applied = applied;
  }

  async #writeOnThread(packed: Buffer<ArrayBuffer>, meta: Buffer | undefined): Promise<void> {
    this.#threadIdle?.cancel();
    this.#thread ??= new BlockingPool('index', { threads: 1, queue_max: 1, module: THREAD_MODULE });
    try {
      await this.#thread.run('write', [this.#path, packed, meta], NEVER, [packed.buffer]);
    } finally {
      this.#threadIdle = sched.timer(THREAD_IDLE_MS, () => void this.#endThread(), 'index.thread');
    }
    // What is read from now on is read from what was written.
    this.#db.resetReadTxn();
  }

  async #endThread(): Promise<void> {
    this.#threadIdle?.cancel();
    const thread = this.#thread;
    this.#thread = undefined;
    if (thread === undefined) return;
    // One that has died has nothing open any more.
    await thread.run('close', [this.#path], NEVER).catch(() => undefined);
    await thread.close();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#endThread();
    await this.#db.close();
    try {
      writeFileSync(cleanMark(this.#path), '');
    } catch {
      // A disk that cannot take the mark: the next start looks through the index.
    }
  }

  /** Visits every page that holds entries. */
  #walk(): void {
    for (const key of this.#db.getKeys()) if (key.length === 0) throw new Error('an entry without a key');
  }

  #readApplied(): Applied | undefined {
    const bytes = readMeta(this.#db);
    if (bytes === undefined || bytes.length !== VALUE_BYTES || bytes.readUInt32LE(0) !== FORMAT) return undefined;
    const position = { segment: bytes.readUInt32LE(4), offset: bytes.readUInt32LE(8) };
    return { position, seq: bytes.readDoubleLE(16) };
  }
}

/**
 * Keys whose entries lie on the same pages, one after another: each page is then written once for all of them. By their first
 * two bytes, which is as good as sorting and takes a tenth of the time.
 */
function neighboursTogether(keys: Iterable<string>): string[] {
  const groups = new Map<number, string[]>();
  for (const key of keys) {
    const prefix = (key.charCodeAt(0) << 8) | key.charCodeAt(1);
    const group = groups.get(prefix);
    if (group === undefined) groups.set(prefix, [key]);
    else group.push(key);
  }
  return [...groups.keys()].toSorted((a, b) => a - b).flatMap((prefix) => groups.get(prefix)!);
}

function encodeApplied(applied: Applied): Buffer {
  const bytes = Buffer.alloc(VALUE_BYTES);
  bytes.writeUInt32LE(FORMAT, 0);
  bytes.writeUInt32LE(applied.position.segment, 4);
  bytes.writeUInt32LE(applied.position.offset, 8);
  bytes.writeDoubleLE(applied.seq, 16);
  return bytes;
}

const dataFile = (path: string): string => join(path, 'data.mdb');
const openingMark = (path: string): string => `${path}.opening`;
const cleanMark = (path: string): string => `${path}.clean`;

/** Why an index must not even be opened; undefined when it may be. LMDB maps the file: what it reads had better exist. */
function whyNotTrusted(path: string): string | undefined {
  if (existsSync(openingMark(path))) return 'the last attempt to open it did not end';
  if (!existsSync(dataFile(path))) return undefined;
  const size = statSync(dataFile(path)).size;
  const head = Buffer.alloc(LMDB_META.bytes);
  const fd = openSync(dataFile(path), 'r');
  try {
    if (readSync(fd, head, 0, head.length, 0) < head.length) return 'its file is too short';
    const page_bytes = head.readUInt32LE(LMDB_META.page_bytes);
    if (head.readUInt32LE(LMDB_META.magic) !== LMDB_MAGIC || page_bytes < 512 || page_bytes > 65_536)
      return 'its file is no index';
    const second = Buffer.alloc(LMDB_META.bytes);
    if (readSync(fd, second, 0, second.length, page_bytes) < second.length) return 'its file is too short';
    if (second.readUInt32LE(LMDB_META.magic) !== LMDB_MAGIC) return 'its file is no index';
    const newest = transactionOf(head) >= transactionOf(second) ? head : second;
    const needed = (newest.readBigUInt64LE(LMDB_META.last_page) + 1n) * BigInt(page_bytes);
    return BigInt(size) < needed ? 'its file is too short' : undefined;
  } finally {
    closeSync(fd);
  }
}

const transactionOf = (meta: Buffer): bigint => meta.readBigUInt64LE(LMDB_META.transaction);
