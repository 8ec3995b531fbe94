/**
 * Where each record lies: a cache of the log, which can be thrown away at any time.
 *
 * Contract: an entry that was `set` is found at once, from memory until a flush has taken it to a run. Only durable
 * records are entered, so an entry never leads to a record that a crash could take. `tag` answers from memory alone;
 * `getNow` never waits; `get` may read from disk.
 * Bound: `PENDING_MAX` entries in memory, then `isFull` asks writers to wait for a flush; at `isOverfull` writers are
 * refused. One flush at a time and one that waits for it.
 * Cancellation: every disk call ends by the file system's deadline.
 */
import { isRonError, RonError } from '@ron/kernel';
import { rethrowDisk } from '@ron/log';
import {
  FLAG_DAMAGED,
  keyOf,
  superseding,
  TABLE_NUMBER,
  tagOf,
  withDead,
  type Applied,
  type Place,
  type Table,
} from './entry.ts';
import { RunDamaged } from './run-file.ts';
import { ON_DISK, type RunIndex } from './run-index.ts';
import { sortEntries } from './sort-keys.ts';

/** Entries that wait for a flush before writers are held back: a few seconds of full speed, 20 MiB. */
const PENDING_MAX = 65_536;
const PAGE_ENTRIES = 512;

export interface PlaceIndexInit {
  runs: RunIndex;
  /** Called when a run turns out to be damaged. The index has to be rebuilt. */
  onDamage?: ((error: RunDamaged) => void) | undefined;
}

/** What is known of an entry without reading it. */
export interface Tag {
  readonly type: number;
  readonly isDamaged: boolean;
}

/** Watches one entry while a record is moved: whether a newer one was entered meanwhile. */
export interface Hold extends Disposable {
  /** The highest `seq` that was entered since; Infinity when the entry was removed. */
  readonly newest_seq: number;
}

interface Held {
  count: number;
  newest_seq: number;
}

type Entries = Map<string, Place | undefined>;

const same = (a: Applied, b: Applied | undefined): boolean =>
  a.seq === b?.seq && a.position.segment === b.position.segment && a.position.offset === b.position.offset;

/** `place` in the place of an older entry. Contents carry no range of superseded records: they are kept by need. */
const newestOf = (key: string, place: Place | undefined, older: Place | undefined): Place | undefined =>
  place === undefined || key.charCodeAt(0) === TABLE_NUMBER.content ? place : superseding(place, older);

export class PlaceIndex implements AsyncDisposable {
  readonly #onDamage: ((error: RunDamaged) => void) | undefined;
  #runs: RunIndex;
  #pending: Entries = new Map();
  #flushing: Entries = new Map();
  readonly #held = new Map<string, Held>();
  #running: Promise<void> = Promise.resolve();
  /** A flush that waits for the one under way. It serves every caller that comes before it takes its entries. */
  #next: Promise<void> | undefined;

  constructor(init: PlaceIndexInit) {
    this.#runs = init.runs;
    this.#onDamage = init.onDamage;
  }

  /** As of the last flush. */
  get applied(): Applied | undefined {
    return this.#runs.applied;
  }

  get runs(): RunIndex {
    return this.#runs;
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

  /** At most this many entries. */
  count(table: Table): number {
    return this.#runs.count(table) + this.pending;
  }

  /** Type and condition of an entry, from memory alone; undefined when there is none. */
  tag(table: Table, id: Uint8Array): Tag | undefined {
    const recent = this.#recent(keyOf(table, id));
    if (recent === undefined) return undefined;
    const tag = recent === ON_DISK ? this.#runs.tag(table, id) : tagOf(recent);
    return tag === undefined ? undefined : { type: tag & 0xff, isDamaged: ((tag >>> 8) & FLAG_DAMAGED) !== 0 };
  }

  /** The entry of an id; `ON_DISK` when that takes a read. */
  getNow(table: Table, id: Uint8Array): Place | typeof ON_DISK | undefined {
    const recent = this.#recent(keyOf(table, id));
    return recent === ON_DISK ? this.#watch(() => this.#runs.placeNow(table, id)) : recent;
  }

  async get(table: Table, id: Uint8Array): Promise<Place | undefined> {
    const now = this.getNow(table, id);
    return now === ON_DISK ? await this.#read(() => this.#runs.place(table, id)) : now;
  }

  /** As `get`, with the whole range of segments that may hold superseded records of the id. */
  async getWithDead(table: Table, id: Uint8Array): Promise<Place | undefined> {
    const [newest, ...older] = await this.#read(() => this.#runs.places(table, id));
    return this.#withRecent(keyOf(table, id), newest && older.reduce(superseding, newest));
  }

  /** Enters a record that is newer than what is known of the id. */
  set(table: Table, id: Uint8Array, place: Place): void {
    const key = keyOf(table, id);
    this.#pending.set(key, newestOf(key, place, this.#pending.get(key))!);
    this.#note(key, place.seq);
  }

  /**
   * Enters a record that may be older than what is known: the higher `seq` wins, of equal ones the later place. An entry
   * that only runs hold must be known by the caller, by `hold` or by `known`.
   */
  enter(table: Table, id: Uint8Array, place: Place, known?: Place): void {
    const key = keyOf(table, id);
    const recent = this.#recent(key);
    const rival = recent === ON_DISK ? known : recent;
    const newest_seq = Math.max(rival?.seq ?? 0, recent === ON_DISK ? (this.#held.get(key)?.newest_seq ?? 0) : 0);
    if (place.seq >= newest_seq) return this.set(table, id, rival === undefined ? place : superseding(place, rival));
    if (rival !== undefined && table !== 'content') {
      this.set(table, id, withDead(rival, place.segment, place.segment));
    }
  }

  remove(table: Table, id: Uint8Array): void {
    const key = keyOf(table, id);
    this.#pending.set(key, undefined);
    this.#note(key, Infinity);
  }

  /** Watches an entry until the result is disposed. */
  hold(table: Table, id: Uint8Array): Hold {
    const key = keyOf(table, id);
    let held = this.#held.get(key);
    if (held === undefined) this.#held.set(key, (held = { count: 0, newest_seq: 0 }));
    held.count += 1;
    const mine = held;
    return {
      get newest_seq() {
        return mine.newest_seq;
      },
      [Symbol.dispose]: () => {
        mine.count -= 1;
        if (mine.count === 0) this.#held.delete(key);
      },
    };
  }

  /** Takes everything that was set so far to a run. `applied` is read in the step that takes the entries. */
  flush(applied: () => Applied): Promise<void> {
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      const flush = this.#flushOnce(applied);
      this.#running = flush.catch(() => undefined);
      return flush;
    });
    return this.#next;
  }

  /**
   * About `count` entries of a table after an id, in order. Flush first: entries that were never flushed are not listed.
   * An empty page is the end; `last` is where the next page begins.
   */
  async page(table: Table, after: Uint8Array | undefined, count = PAGE_ENTRIES): Promise<Page> {
    const stored = await this.#read(() => this.#runs.page(table, after, count));
    const entries: [Buffer, Place][] = [];
    for (const [id, place] of stored) {
      const now = this.#withRecent(keyOf(table, id), place);
      if (now !== undefined) entries.push([id, now]);
    }
    return { entries, last: stored.at(-1)?.[0] };
  }

  /** Ids of a table after `after`, 32 bytes each, as many as fit `into`: how many. Ended and damaged ones are included. */
  async ids(table: Table, after: Uint8Array | undefined, into: Buffer): Promise<number> {
    let bytes = 0;
    let last = after;
    while (bytes < into.length) {
      const page = await this.page(table, last, Math.min(PAGE_ENTRIES, Math.ceil((into.length - bytes) / 32)));
      for (const [id] of page.entries) {
        if (bytes + id.length > into.length) return bytes / 32;
        into.set(id, bytes);
        bytes += id.length;
      }
      if (page.last === undefined) break;
      last = page.last;
    }
    return bytes / 32;
  }

  async close(): Promise<void> {
    await this.#running;
    await this.#runs.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Puts other runs in the place of those that are damaged. They hold everything up to their own `applied`. */
  async replaceRuns(runs: RunIndex): Promise<void> {
    const old = this.#runs;
    this.#runs = runs;
    await old.close();
  }

  /** An entry that is not in a run yet; `ON_DISK` when the runs have to be searched. */
  #recent(key: string): Place | typeof ON_DISK | undefined {
    const pending = this.#pending.get(key);
    if (pending !== undefined || this.#pending.has(key)) return pending;
    const flushing = this.#flushing.get(key);
    return flushing !== undefined || this.#flushing.has(key) ? flushing : ON_DISK;
  }

  /** The newest entry, when the runs hold `stored`. */
  #withRecent(key: string, stored: Place | undefined): Place | undefined {
    let place = stored;
    for (const layer of [this.#flushing, this.#pending]) {
      if (layer.has(key)) place = newestOf(key, layer.get(key), place);
    }
    return place;
  }

  #note(key: string, seq: number): void {
    const held = this.#held.get(key);
    if (held !== undefined) held.newest_seq = Math.max(held.newest_seq, seq);
  }

  async #flushOnce(applied: () => Applied): Promise<void> {
    const now = applied();
    if (this.#pending.size === 0 && same(now, this.#runs.applied)) return;
    this.#flushing = this.#pending;
    this.#pending = new Map();
    try {
      await this.#runs.write(await sortEntries(this.#flushing), now);
    } catch (error) {
      // Entries that were not stored go back below those that have been set since.
      const below = this.#flushing;
      for (const [key, place] of this.#pending) below.set(key, newestOf(key, place, below.get(key)));
      this.#pending = below;
      throw error;
    } finally {
      this.#flushing = new Map();
    }
  }

  #watch<T>(look: () => T): T {
    try {
      return look();
    } catch (error) {
      throw this.#seen(error);
    }
  }

  async #read<T>(look: () => Promise<T>): Promise<T> {
    try {
      return await look();
    } catch (error) {
      throw this.#seen(error);
    }
  }

  #seen(error: unknown): unknown {
    if (error instanceof RunDamaged) {
      this.#onDamage?.(error);
      return new RonError('not_ready', 'the index is damaged and is being rebuilt', { cause: error, retry_after_ms: 1000 });
    }
    if (isRonError(error)) return error;
    try {
      return rethrowDisk(error);
    } catch (thrown) {
      return thrown;
    }
  }
}

export interface Page {
  readonly entries: readonly [id: Buffer, place: Place][];
  readonly last: Uint8Array | undefined;
}
