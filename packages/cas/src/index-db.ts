/**
 * Where each record lies: a cache of the log in LMDB, which can be thrown away at any time.
 *
 * Promise: what `set` was told is found at once, from memory until a transaction has taken it to disk. The place up to
 * which the log is reflected is written in the same transaction, so a start replays exactly what is missing.
 * Bound: `PENDING_MAX` entries in memory; then `set` asks its caller to wait for `flushed`. Overflow: back-pressure.
 * Cancellation: none; a flush ends by itself.
 *
 * LMDB pages carry no checksums: what an entry says is checked against the record it points to, at every read.
 */
import { existsSync, rmSync } from 'node:fs';
import { open, type RootDatabase } from 'lmdb';
import type { Position } from '@ron/log';

/** Entries that wait for a flush before writers are held back: a few seconds of full speed, 20 MiB. */
const PENDING_MAX = 65_536;
const FORMAT = 1;
const VALUE_BYTES = 32;

/** Three tables in one tree, told apart by the first byte of the key. */
export type Table = 'content' | 'object' | 'pin';
const TABLE_BYTE: Record<Table, number> = { content: 1, object: 2, pin: 3 };
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

  private constructor(db: RootDatabase<Buffer, Buffer>) {
    this.#db = db;
  }

  /** Opens the index at `path`; one that cannot be opened or is of another format is deleted, and the log replayed. */
  static open(path: string): { index: IndexDb; applied: Applied | undefined; rebuilt: string | undefined } {
    try {
      const index = new IndexDb(openDb(path));
      const applied = index.#readApplied();
      if (applied !== undefined || index.#db.getCount({ limit: 1 }) === 0)
        return { index, applied, rebuilt: undefined };
      index.#db.close().catch(() => undefined);
      return IndexDb.#anew(path, 'it holds entries but not how far it got');
    } catch (error) {
      return IndexDb.#anew(path, error instanceof Error ? error.message : String(error));
    }
  }

  static #anew(path: string, why: string): { index: IndexDb; applied: undefined; rebuilt: string } {
    if (existsSync(path)) rmSync(path, { recursive: true });
    return { index: new IndexDb(openDb(path)), applied: undefined, rebuilt: why };
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

function openDb(path: string): RootDatabase<Buffer, Buffer> {
  return open<Buffer, Buffer>({ path, encoding: 'binary', keyEncoding: 'binary', compression: false, maxReaders: 126 });
}
