/**
 * Where each record lies: a cache of the log, which can be thrown away at any time.
 *
 * Contract: an entry is found as soon as `set` returns, in memory until a flush has stored it. Only durable records are
 * entered, so every entry may be stored. `applied` is stored after the entries that it covers: a start replays at least
 * the missing records, and replaying a record twice does no harm.
 * Bound: `PENDING_MAX` entries in memory, then `isFull` tells writers to wait for a flush; at `isOverfull` they are
 * refused. Overflow: back-pressure.
 */
import type { Position } from '@ron/log';

/** Entries that wait for a flush before writers are held back: a few seconds of full speed, 20 MiB. */
const PENDING_MAX = 65_536;

/** Several tables in one, told apart by the first character of the key. */
export type Table = 'content' | 'object' | 'pin' | 'stripe' | 'shard' | 'note';
const TABLE_BYTE: Record<Table, number> = { content: 1, object: 2, pin: 3, stripe: 4, shard: 5, note: 6 };

export interface Place extends Position {
  readonly type: number;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
  readonly seq: number;
  readonly time_s: number;
  /** There was an object, and what lies there is not it any more: it is neither here nor gone. */
  readonly isDamaged?: boolean;
}

/** How far the log is reflected in the index. */
export interface Applied {
  readonly position: Position;
  readonly seq: number;
}

/** A key is the table's byte and the id, as latin1 text; `undefined` removes the entry. */
export type Changes = ReadonlyMap<string, Place | undefined>;

/** Where the entries go. After a crash in the middle of `store` a part of the changes may be there, but never `applied`. */
export interface PlaceStore {
  readonly applied: Applied | undefined;
  get(key: string): Place | undefined;
  /** Entries with `low <= key < high`, in order; each key is valid until the next one. */
  range(low: string, high: string): Iterable<[key: Buffer, place: Place]>;
  /** The ids in their keys alone, one after the other, as many as fit `into`: how many. */
  copyIds(low: string, high: string, into: Buffer): number;
  store(changes: Changes, applied: Applied): Promise<void>;
  close(): Promise<void>;
}

export interface FlushInit {
  /** How far the log is reflected by the entries that are set. Called in the step that takes them. */
  applied(): Applied;
}

const keyOf = (table: Table, id: Uint8Array): string =>
  String.fromCharCode(TABLE_BYTE[table]) + Buffer.from(id.buffer, id.byteOffset, id.length).toString('latin1');

/** The keys of a table after an id: from the first one up to and without the second. */
function boundsOf(table: Table, after: Uint8Array | undefined): [low: string, high: string] {
  const low = after === undefined ? String.fromCharCode(TABLE_BYTE[table]) : `${keyOf(table, after)}\0`;
  return [low, String.fromCharCode(TABLE_BYTE[table] + 1)];
}

const same = (a: Applied, b: Applied | undefined): boolean =>
  a.seq === b?.seq && a.position.segment === b.position.segment && a.position.offset === b.position.offset;

type Entries = Map<string, Place | undefined>;

export class PlaceIndex implements AsyncDisposable {
  readonly #store: PlaceStore;
  #pending: Entries = new Map();
  #flushing: Entries = new Map();
  #running: Promise<void> = Promise.resolve();
  /** A flush that waits for the one under way. It serves all callers until it takes its entries. */
  #next: Promise<void> | undefined;

  constructor(store: PlaceStore) {
    this.#store = store;
  }

  /** As of the last flush. */
  get applied(): Applied | undefined {
    return this.#store.applied;
  }

  get pending(): number {
    return this.#pending.size + this.#flushing.size;
  }

  get isFull(): boolean {
    return this.#pending.size >= PENDING_MAX;
  }

  get isOverfull(): boolean {
    return this.#pending.size >= 2 * PENDING_MAX;
  }

  get(table: Table, id: Uint8Array): Place | undefined {
    const key = keyOf(table, id);
    const pending = this.#pending.get(key);
    if (pending !== undefined || this.#pending.has(key)) return pending;
    const flushing = this.#flushing.get(key);
    if (flushing !== undefined || this.#flushing.has(key)) return flushing;
    return this.#store.get(key);
  }

  set(table: Table, id: Uint8Array, place: Place): void {
    this.#pending.set(keyOf(table, id), place);
  }

  remove(table: Table, id: Uint8Array): void {
    this.#pending.set(keyOf(table, id), undefined);
  }

  /** Stores the entries that are set. */
  flush(init: FlushInit): Promise<void> {
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      const flush = this.#flushOnce(init);
      this.#running = flush.catch(() => undefined);
      return flush;
    });
    return this.#next;
  }

  /**
   * Every stored entry of a table whose id comes after `after`, in order of ids. Flush first. An id is valid until the
   * next one; do not wait between two: begin anew after the last one instead.
   */
  *entries(table: Table, after?: Uint8Array): Generator<[id: Buffer, place: Place], void, void> {
    for (const [key, place] of this.#store.range(...boundsOf(table, after))) yield [key.subarray(1), place];
  }

  /** As `entries`, but ids alone, 32 bytes each, as many as fit `into`: how many. Also of what has ended. */
  ids(table: Table, after: Uint8Array | undefined, into: Buffer): number {
    return this.#store.copyIds(...boundsOf(table, after), into);
  }

  async close(): Promise<void> {
    await this.#running;
    await this.#store.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #flushOnce(init: FlushInit): Promise<void> {
    const applied = init.applied();
    if (this.#pending.size === 0 && same(applied, this.#store.applied)) return;
    this.#flushing = this.#pending;
    this.#pending = new Map();
    try {
      await this.#store.store(this.#flushing, applied);
    } catch (error) {
      // Entries that were not stored go back below those that were set since.
      this.#pending = new Map([...this.#flushing, ...this.#pending]);
      throw error;
    } finally {
      this.#flushing = new Map();
    }
  }
}
