/**
 * Where each record lies: a cache of the log in LMDB, which can be thrown away at any time.
 *
 * Promise: what `set` was told is found at once, from memory until a transaction has taken it to disk. The place up to
 * which the log is reflected is written in the same transaction, so a start replays exactly what is missing.
 * Bound: `PENDING_MAX` entries in memory; then `set` asks its caller to wait for `flushed`. Overflow: back-pressure.
 * Cancellation: none; a flush ends by itself.
 *
 * LMDB pages carry no checksums: what an entry says is checked against the record it points to, at every read. And a
 * damaged tree can make LMDB end the process: so an index that was not closed in order is walked through at open, under a
 * mark that makes the start after such an end begin anew.
 */
import { closeSync, existsSync, mkdirSync, openSync, readSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { open, type RootDatabase } from 'lmdb';
import type { Position } from '@ron/log';

/** Entries that wait for a flush before writers are held back: a few seconds of full speed, 20 MiB. */
const PENDING_MAX = 65_536;
const FORMAT = 1;
const VALUE_BYTES = 32;

/** Three tables in one tree, told apart by the first byte of the key. */
export type Table = 'content' | 'object' | 'pin';
const TABLE_BYTE: Record<Table, number> = { content: 1, object: 2, pin: 3 };
/** The first page of an LMDB file: where its mark, page size, last page and transaction number lie. */
const LMDB_META = { magic: 24, page_bytes: 48, last_page: 144, transaction: 152, bytes: 160 } as const;
const LMDB_MAGIC = 0xbe_ef_c0_de;
const META_KEY = Buffer.from([0]);

export interface Place extends Position {
  readonly type: number;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
  readonly seq: number;
}

/** How far the log is reflected in the index. */
export interface Applied {
  readonly position: Position;
  readonly seq: number;
}

function encode(place: Place): Buffer {
  const bytes = Buffer.alloc(VALUE_BYTES);
  bytes.writeUInt32LE(place.segment, 0);
  bytes.writeUInt32LE(place.offset, 4);
  bytes.writeUInt32LE(place.payload_bytes, 8);
  bytes.writeUInt16LE(place.meta_bytes, 12);
  bytes.writeUInt8(place.type, 14);
  bytes.writeDoubleLE(place.seq, 16);
  return bytes;
}

function decode(bytes: Buffer): Place | undefined {
  if (bytes.length !== VALUE_BYTES) return undefined;
  return {
    segment: bytes.readUInt32LE(0),
    offset: bytes.readUInt32LE(4),
    payload_bytes: bytes.readUInt32LE(8),
    meta_bytes: bytes.readUInt16LE(12),
    type: bytes.readUInt8(14),
    seq: bytes.readDoubleLE(16),
  };
}

const textOf = (table: Table, id: Uint8Array): string =>
  String.fromCharCode(TABLE_BYTE[table]) + Buffer.from(id.buffer, id.byteOffset, id.length).toString('latin1');

/** `undefined` in a pending map: the entry is removed. */
type Pending = Map<string, Place | undefined>;

export class IndexDb implements AsyncDisposable {
  readonly #db: RootDatabase<Buffer, Buffer>;
  #pending: Pending = new Map();
  #flushing: Pending = new Map();
  #flush: Promise<void> | undefined;
  #closed = false;

  readonly #path: string;

  private constructor(db: RootDatabase<Buffer, Buffer>, path: string) {
    this.#db = db;
    this.#path = path;
  }

  /** Throws the index away: the log tells that it cannot be right. */
  async startAnew(): Promise<IndexDb> {
    await this.#db.close();
    return IndexDb.#anew(this.#path, '').index;
  }

  /** Opens the index at `path`; one that cannot be trusted is deleted, and the log replayed. */
  static open(path: string): { index: IndexDb; applied: Applied | undefined; rebuilt: string | undefined } {
    const distrust = whyNotTrusted(path);
    if (distrust === undefined) {
      try {
        return IndexDb.#openTrusted(path);
      } catch (error) {
        return IndexDb.#anew(path, error instanceof Error ? error.message : String(error));
      }
    }
    return IndexDb.#anew(path, distrust);
  }

  static #openTrusted(path: string): { index: IndexDb; applied: Applied | undefined; rebuilt: string | undefined } {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    const isFirst = !existsSync(dataFile(path));
    // Damage inside makes LMDB end the process. The mark stays behind then, and the next start begins anew.
    writeFileSync(openingMark(path), '');
    const index = new IndexDb(openDb(path), path);
    const applied = index.#readApplied();
    if (!existsSync(cleanMark(path))) index.#walk();
    rmSync(cleanMark(path), { force: true });
    rmSync(openingMark(path));
    if (applied !== undefined || isFirst) return { index, applied, rebuilt: undefined };
    index.#db.close().catch(() => undefined);
    return IndexDb.#anew(path, 'it does not say how far it got');
  }

  static #anew(path: string, why: string): { index: IndexDb; applied: undefined; rebuilt: string } {
    rmSync(path, { recursive: true, force: true });
    rmSync(openingMark(path), { force: true });
    rmSync(cleanMark(path), { force: true });
    mkdirSync(path, { recursive: true, mode: 0o700 });
    return { index: new IndexDb(openDb(path), path), applied: undefined, rebuilt: why };
  }

  get(table: Table, id: Uint8Array): Place | undefined {
    const key = textOf(table, id);
    if (this.#pending.has(key)) return this.#pending.get(key);
    if (this.#flushing.has(key)) return this.#flushing.get(key);
    const bytes = this.#db.getBinaryFast(Buffer.from(key, 'latin1'));
    return bytes === undefined ? undefined : decode(bytes);
  }

  set(table: Table, id: Uint8Array, place: Place): void {
    this.#pending.set(textOf(table, id), place);
  }

  remove(table: Table, id: Uint8Array): void {
    this.#pending.set(textOf(table, id), undefined);
  }

  get isFull(): boolean {
    return this.#pending.size >= PENDING_MAX;
  }

  get pending(): number {
    return this.#pending.size + this.#flushing.size;
  }

  /**
   * Takes what is in memory to disk, with the place in the log that it reflects. `beforeStore` runs after the entries
   * were taken and before they are stored. Calls while one is under way wait for it and then take the rest.
   */
  async flush(applied: Applied, beforeStore: () => Promise<void>): Promise<void> {
    while (this.#flush !== undefined) await this.#flush.catch(() => undefined);
    this.#flush = this.#flushOnce(applied, beforeStore).finally(() => (this.#flush = undefined));
    await this.#flush;
  }

  /** Every entry of a table whose id comes after `after`, in order of ids. Flush first: it reads what is on disk. */
  *entries(table: Table, after?: Uint8Array): Generator<[Uint8Array, Place]> {
    const low = Buffer.from([TABLE_BYTE[table], ...(after ?? []), ...(after === undefined ? [] : [0])]);
    const high = Buffer.from([TABLE_BYTE[table] + 1]);
    for (const { key, value } of this.#db.getRange({ start: low, end: high })) {
      const place = decode(value);
      if (place !== undefined) yield [key.subarray(1), place];
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#flush?.catch(() => undefined);
    await this.#db.close();
    writeFileSync(cleanMark(this.#path), '');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #flushOnce(applied: Applied, beforeStore: () => Promise<void>): Promise<void> {
    this.#flushing = this.#pending;
    this.#pending = new Map();
    try {
      await beforeStore();
      await this.#store(applied);
      this.#flushing = new Map();
    } catch (error) {
      // Nothing is lost: what has not been set again since goes back to where it was.
      this.#pending = new Map([...this.#flushing, ...this.#pending]);
      this.#flushing = new Map();
      throw error;
    }
  }

  async #store(applied: Applied): Promise<void> {
    await this.#db.transaction(() => {
      for (const [key, place] of this.#flushing) {
        if (place === undefined) this.#db.removeSync(Buffer.from(key, 'latin1'));
        else this.#db.putSync(Buffer.from(key, 'latin1'), encode(place));
      }
      this.#db.putSync(META_KEY, encodeApplied(applied));
    });
    await this.#db.flushed;
  }

  /** Visits every page that holds entries. */
  #walk(): void {
    for (const key of this.#db.getKeys()) if (key.length === 0) throw new Error('an entry without a key');
  }

  #readApplied(): Applied | undefined {
    const bytes = this.#db.getBinary(META_KEY);
    if (bytes === undefined || bytes.length !== VALUE_BYTES || bytes.readUInt32LE(0) !== FORMAT) return undefined;
    const position = { segment: bytes.readUInt32LE(4), offset: bytes.readUInt32LE(8) };
    return { position, seq: bytes.readDoubleLE(16) };
  }
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

function openDb(path: string): RootDatabase<Buffer, Buffer> {
  return open<Buffer, Buffer>({
    path,
    noSubdir: false,
    encoding: 'binary',
    keyEncoding: 'binary',
    compression: false,
    maxReaders: 126,
  });
}
