/**
 * Where each record lies: a cache of the log, which can be thrown away at any time.
 *
 * Promise: what `set` was told is found at once, from memory until a flush has taken it to the store. How far the log is
 * reflected is stored after everything else, so a start replays at least what is missing; what it replays twice does no
 * harm. What the log could still lose is never stored, and when it is lost what was known before counts again.
 * Bound: `PENDING_MAX` entries in memory, then `isFull` asks writers to wait for a flush; at `isOverfull` they are to be
 * refused. Overflow: back-pressure. Cancellation: none; a flush ends by itself.
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
  /** How far the log is reflected by what was set until now. */
  applied(): Applied;
  /** Makes the log durable. What it could not make so is told by `isDurable`. */
  syncLog(): Promise<void>;
  isDurable(place: Place): boolean;
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

/** Entries on their way to the store. */
interface Layer {
  readonly entries: Entries;
  /** What entries of this layer have taken the place of, up to the last one that cannot be lost. */
  readonly former: Map<string, (Place | undefined)[]>;
}

const emptyLayer = (): Layer => ({ entries: new Map(), former: new Map() });

export class PlaceIndex implements AsyncDisposable {
  readonly #store: PlaceStore;
  readonly #isDurable: (place: Place) => boolean;
  #pending = emptyLayer();
  #flushing = emptyLayer();
  #running: Promise<void> = Promise.resolve();
  /** A flush that waits for the one under way. It serves everybody who asks before it takes its entries. */
  #next: Promise<void> | undefined;

  constructor(store: PlaceStore, isDurable: (place: Place) => boolean = () => true) {
    this.#store = store;
    this.#isDurable = isDurable;
  }

  /** As of the last flush. */
  get applied(): Applied | undefined {
    return this.#store.applied;
  }

  get pending(): number {
    return this.#pending.entries.size + this.#flushing.entries.size;
  }

  get isFull(): boolean {
    return this.#pending.entries.size >= PENDING_MAX;
  }

  get isOverfull(): boolean {
    return this.#pending.entries.size >= 2 * PENDING_MAX;
  }

  get(table: Table, id: Uint8Array): Place | undefined {
    const key = keyOf(table, id);
    const pending = this.#pending.entries.get(key);
    if (pending !== undefined || this.#pending.entries.has(key)) return pending;
    const flushing = this.#flushing.entries.get(key);
    if (flushing !== undefined || this.#flushing.entries.has(key)) return flushing;
    return this.#store.get(key);
  }

  set(table: Table, id: Uint8Array, place: Place): void {
    const key = keyOf(table, id);
    const { entries, former } = this.#pending;
    const known = entries.get(key);
    if (known === undefined ? entries.has(key) : this.#isDurable(known)) former.set(key, [known]);
    else if (known !== undefined) former.set(key, [...(former.get(key) ?? []), known]);
    entries.set(key, place);
  }

  remove(table: Table, id: Uint8Array): void {
    const key = keyOf(table, id);
    this.#pending.entries.set(key, undefined);
    this.#pending.former.delete(key);
  }

  /** Forgets what was set and leads to something that is gone: what was known before counts again. */
  forget(isGone: (place: Place) => boolean): void {
    forgetIn(this.#pending, isGone);
    forgetIn(this.#flushing, isGone);
  }

  /** Takes what was set until now to the store. */
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
    if (this.#pending.entries.size === 0 && same(applied, this.#store.applied)) return;
    this.#flushing = this.#pending;
    this.#pending = emptyLayer();
    try {
      await init.syncLog();
      await this.#store.store(durableOf(this.#flushing.entries, init), applied);
    } catch (error) {
      // What was not stored goes back to where it was, below what has been set since.
      this.#pending = merged(this.#flushing, this.#pending);
      throw error;
    } finally {
      this.#flushing = emptyLayer();
    }
  }
}

function forgetIn({ entries, former }: Layer, isGone: (place: Place) => boolean): void {
  for (const [key, place] of entries) {
    if (place === undefined || !isGone(place)) continue;
    const known = former.get(key) ?? [];
    const last = known.findLastIndex((each) => each === undefined || !isGone(each));
    former.delete(key);
    if (last < 0) entries.delete(key);
    else entries.set(key, known[last]);
  }
}

function merged(below: Layer, above: Layer): Layer {
  const entries = new Map([...below.entries, ...above.entries]);
  const former = new Map(below.former);
  for (const key of above.entries.keys()) {
    const known = below.entries.has(key) ? [...(below.former.get(key) ?? []), below.entries.get(key)] : [];
    former.set(key, [...known, ...(above.former.get(key) ?? [])]);
  }
  return { entries, former };
}

/** Without what the log could not make durable: it is gone, and nobody was told that it is there. */
function durableOf(changes: Changes, init: FlushInit): Changes {
  const isDurable = ([, place]: [string, Place | undefined]): boolean => place === undefined || init.isDurable(place);
  const all = [...changes];
  return all.every(isDurable) ? changes : new Map(all.filter(isDurable));
}
