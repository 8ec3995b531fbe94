/**
 * The place of each record in the log. It can be discarded and rebuilt from the log at any time.
 *
 * Contract: an entry that was `set` is found at once, from memory until a flush has taken it to a run. Only durable
 * records are entered, so an entry never leads to a record that a crash could take. `tag` answers from memory alone;
 * `getNow` never waits; `get` may read from disk.
 * Bound: `PENDING_MAX` entries in memory, then `isFull` tells writers to wait for a flush; at `isOverfull` writers are
 * refused. One flush at a time and one that waits for it.
 * Cancellation: every disk call ends by the file system's deadline.
 */
import { isRonError, RonError } from '@ron/kernel';
import { ID_BYTES, rethrowDisk } from '@ron/log';
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
const READ_ATTEMPTS = 16;

export interface PlaceIndexInit {
  runs: RunIndex;
  /** Called when a run turns out to be damaged. The index has to be rebuilt. */
  onDamage?: ((error: RunDamaged) => void) | undefined;
}

/** The part of an entry that is known without reading it. */
export interface Tag {
  readonly type: number;
  readonly isDamaged: boolean;
}

/** Watches one entry while its record is read or moved. */
export interface Hold extends Disposable {
  /** The entry as of now. */
  readonly place: Place | undefined;
}

interface Held {
  count: number;
  /** The entry when the first hold began, once it is read. */
  known: Place | undefined;
  /** The last one that was set since. */
  newest: Place | undefined;
  /** The entry was removed since, and not set again. */
  isRemoved: boolean;
}

type Entries = Map<string, Place | undefined>;

/** How far an index reaches that reflects nothing yet. */
export const EMPTY_LOG: Applied = { position: { segment: 0, offset: 0 }, seq: 0 };

const same = (a: Applied, b: Applied = EMPTY_LOG): boolean =>
  a.seq === b.seq && a.position.segment === b.position.segment && a.position.offset === b.position.offset;

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
  #rebuilding: PlaceIndex | undefined;

  constructor(init: PlaceIndexInit) {
    this.#runs = init.runs;
    this.#onDamage = init.onDamage;
    // A merge has no caller that would see the failure.
    init.runs.onDamage = (error) => this.#onDamage?.(error);
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
    return recent === ON_DISK ? this.#storedNow(table, id) : recent;
  }

  async get(table: Table, id: Uint8Array): Promise<Place | undefined> {
    const now = this.getNow(table, id);
    return now === ON_DISK ? await this.#read(() => this.#runs.place(table, id)) : now;
  }

  /** As `get`, with the whole range of segments that may hold superseded records of the id. */
  async getWithDead(table: Table, id: Uint8Array): Promise<Place | undefined> {
    const [newest, ...older] = await this.#read(() => this.#settledRead(() => this.#runs.places(table, id)));
    return this.#withRecent(keyOf(table, id), newest && older.reduce(superseding, newest));
  }

  /** Enters a record that is newer than every entry of the id. */
  set(table: Table, id: Uint8Array, place: Place): void {
    const key = keyOf(table, id);
    this.#pending.set(key, newestOf(key, place, this.#pending.get(key)));
    const held = this.#held.get(key);
    if (held !== undefined) [held.newest, held.isRemoved] = [place, false];
    this.#rebuilding?.enter(table, id, place);
  }

  /**
   * Enters a durable record: the higher `seq` wins, of equal ones the later place. A record with a number of its own (one
   * that was moved) must be held by its mover; of one that is replayed, `known` is the entry in the runs. Any other record
   * is newer than every entry.
   */
  enter(table: Table, id: Uint8Array, place: Place, known?: Place): void {
    const key = keyOf(table, id);
    const held = this.#held.get(key);
    // The entry was dropped while its record was on the move.
    if (held?.isRemoved === true && place.seq <= (held.known?.seq ?? 0)) return;
    const recent = this.#recent(key);
    const rival = recent === ON_DISK ? (held?.newest ?? held?.known ?? known) : recent;
    if (rival === undefined || place.seq >= rival.seq) this.set(table, id, superseding(place, rival));
    else if (table !== 'content') this.set(table, id, withDead(rival, place.segment, place.segment));
  }

  /** Whether `enter` needs the entry in the runs for a record that is replayed. Of contents, any place will do. */
  needsKnown(table: Table, id: Uint8Array): boolean {
    return table !== 'content' && this.#recent(keyOf(table, id)) === ON_DISK && this.#runs.tag(table, id) !== undefined;
  }

  remove(table: Table, id: Uint8Array): void {
    const key = keyOf(table, id);
    this.#pending.set(key, undefined);
    const held = this.#held.get(key);
    if (held !== undefined) [held.newest, held.isRemoved] = [undefined, true];
    this.#rebuilding?.remove(table, id);
  }

  /** Removes an entry that was listed a moment ago, unless it has changed. */
  removeListed(table: Table, id: Uint8Array, { segment, offset }: Place): void {
    const recent = this.#recent(keyOf(table, id));
    const isSame = recent === ON_DISK || (recent?.segment === segment && recent.offset === offset);
    if (isSame) this.remove(table, id);
  }

  /** Reads an entry and watches it until the result is disposed. */
  async hold(table: Table, id: Uint8Array): Promise<Hold> {
    const key = keyOf(table, id);
    let held = this.#held.get(key);
    if (held === undefined)
      this.#held.set(key, (held = { count: 0, known: undefined, newest: undefined, isRemoved: false }));
    held.count += 1;
    const mine = held;
    const release = (): void => {
      mine.count -= 1;
      if (mine.count === 0) this.#held.delete(key);
    };
    try {
      const known = await this.get(table, id);
      mine.known ??= known;
    } catch (error) {
      release();
      throw error;
    }
    return {
      get place() {
        return mine.newest ?? (mine.isRemoved ? undefined : mine.known);
      },
      [Symbol.dispose]: release,
    };
  }

  /** Takes everything that was set so far to a run. `applied` is read in the step that takes the entries. */
  flush(applied: () => Applied): Promise<void> {
    this.#next ??= this.#inOrder(() => {
      this.#next = undefined;
      return this.#flushOnce(applied);
    });
    return this.#next;
  }

  /** Flushes and the adoption of a rebuilt index run one at a time. */
  #inOrder(work: () => Promise<void>): Promise<void> {
    const done = this.#running.then(work);
    this.#running = done.catch(() => undefined);
    return done;
  }

  /**
   * About `count` entries of a table after an id, in order. Flush first: entries that were never flushed are not listed.
   * An empty page is the end; `last` is where the next page begins.
   */
  async page(table: Table, after: Uint8Array | undefined, count = PAGE_ENTRIES): Promise<Page> {
    const stored = await this.#read(() => this.#pageOf(table, after, count));
    const entries: [Buffer, Place][] = [];
    for (const [id, place] of stored) {
      const now = this.#withRecent(keyOf(table, id), place);
      if (now !== undefined) entries.push([id, now]);
    }
    return { entries, last: stored.at(-1)?.[0] };
  }

  /**
   * Ids of a table after `after`, 32 bytes each, as many as fit `into`: how many. Ended and damaged ones are included, and
   * those that were removed since the last flush.
   */
  async ids(table: Table, after: Uint8Array | undefined, into: Buffer): Promise<number> {
    let bytes = 0;
    let from = after;
    while (bytes + ID_BYTES <= into.length) {
      const count = Math.min(PAGE_ENTRIES, Math.ceil((into.length - bytes) / ID_BYTES));
      const { end, last } = await this.#read(() => this.#runs.ids(table, from, count, into, bytes));
      if (last === undefined) break;
      [bytes, from] = [end, last];
    }
    return bytes / ID_BYTES;
  }

  async close(): Promise<void> {
    await this.#running;
    await this.cancelRebuild();
    await this.#runs.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** From now on everything that is entered here is entered in `other` too, which is being rebuilt from the log. */
  beginRebuild(other: PlaceIndex): void {
    this.#rebuilding = other;
  }

  /** Replaces this index by the rebuilt one. If that fails, this one stays in use. */
  adoptRebuilt(applied: () => Applied): Promise<void> {
    return this.#inOrder(() => this.#adopt(applied));
  }

  async #adopt(applied: () => Applied): Promise<void> {
    const [old, next] = [this.#runs, this.#rebuilding!];
    // From here on both count on disk; a start takes the one that reflects more of the log.
    await next.flush(applied);
    [this.#runs, this.#pending, this.#rebuilding] = [next.#runs, next.#pending, undefined];
    this.#runs.onDamage = (error) => this.#onDamage?.(error);
    await old.stop();
    // Files that cannot be removed now are removed at the next start.
    await old.discard().catch(() => undefined);
    await old.close().catch(() => undefined);
  }

  /** Drops the index that was being rebuilt. */
  async cancelRebuild(): Promise<void> {
    const next = this.#rebuilding;
    this.#rebuilding = undefined;
    await next?.close();
  }

  /** An entry that is not in a run yet; `ON_DISK` when the runs have to be searched. */
  #recent(key: string): Place | typeof ON_DISK | undefined {
    const pending = this.#pending.get(key);
    if (pending !== undefined || this.#pending.has(key)) return pending;
    const flushing = this.#flushing.get(key);
    return flushing !== undefined || this.#flushing.has(key) ? flushing : ON_DISK;
  }

  #pageOf(table: Table, after: Uint8Array | undefined, count: number): Promise<[Buffer, Place | undefined][]> {
    return this.#settledRead(() => this.#runs.page(table, after, count));
  }

  /** Reads again when runs were added or replaced meanwhile: entries that were flushed in between would be missed. */
  async #settledRead<T>(look: () => Promise<T>): Promise<T> {
    for (let attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
      const { runs } = this.#runs;
      const found = await look();
      if (runs === this.#runs.runs) return found;
    }
    throw new RonError('not_ready', 'the index changes faster than it can be read', { retry_after_ms: 1000 });
  }

  /** The newest entry, when the runs hold `stored`. */
  #withRecent(key: string, stored: Place | undefined): Place | undefined {
    let place = stored;
    for (const layer of [this.#flushing, this.#pending]) {
      if (layer.has(key)) place = newestOf(key, layer.get(key), place);
    }
    return place;
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
      throw this.#seen(error);
    } finally {
      this.#flushing = new Map();
    }
  }

  /** Damage is reported here, and thrown by the read that follows. */
  #storedNow(table: Table, id: Uint8Array): Place | typeof ON_DISK | undefined {
    try {
      return this.#runs.placeNow(table, id);
    } catch (error) {
      this.#seen(error);
      return ON_DISK;
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
      return new RonError('not_ready', 'the index is damaged and is being rebuilt', {
        cause: error,
        retry_after_ms: 1000,
      });
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
