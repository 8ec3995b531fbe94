/**
 * The database of the index by SQLite, in threads.
 *
 * Contract: as `IndexStore`. [index I-7] No SQLite call runs on the event loop: one thread writes, two read. Without a
 * directory the database is in memory, in one thread, and no file is written. One process at a time opens a directory. A damaged
 * or foreign file is moved aside and replaced by an empty database with a new epoch, at the start and while it runs; then
 * `onRebuilt` is called, and `problem` is set until the log was applied again; names cannot be read meanwhile. A newer
 * version is refused.
 * Durability: `applied` is committed together with the data. Announcements, epochs and seen names are synced before they are
 * answered; changes of the log and entries of the DHT may be lost by a power failure, which the log and their owners repair.
 * Bound: QUEUE_MAX calls wait for each kind of thread. Overflow: `busy`.
 * Cancellation: each call ends after `call_ms` with `timeout`; it may still take effect later. A hung disk closes `problem` and
 * fails further calls at once, until the disk answers again.
 */
import { join } from 'node:path';
import type { Address, AnnounceEntry, AnnounceRange } from '@ron/proto';
import { RonError, type ErrorCode } from '@ron/kernel';
import { makeDirectory, rethrowDisk } from '@ron/log';
import { DatabaseCalls } from './database-calls.ts';
import type {
  Announced,
  DhtEntry,
  IndexStore,
  LogChange,
  LogPosition,
  NamePosition,
  OwnObject,
  SaveSeenInit,
  StoredName,
  StoredRecord,
  TrustedKey,
} from './index-store.ts';
import type {
  CallError,
  DatabaseInit,
  DatabaseState,
  DhtPutInit,
  OpenedDatabase,
  Quotas,
  Reads,
  Writes,
} from './thread/calls.ts';

export type { Quotas } from './thread/calls.ts';

const FILE = 'index.db';
const READERS = 2;
const QUEUE_MAX = 1024;
const CALL_MS_DEFAULT = 1000;
/** Opening reads the log of the database, and `resetLog` touches every own name. */
const OPEN_MS = 30_000;
const REBUILDING = 'the index database is being rebuilt from the name log';
const RETRY_MS = 1000;
const THREAD = new URL('./thread/db-thread.ts', import.meta.url);

export interface SqliteStoreInit {
  /** Undefined: in memory. */
  readonly dir: string | undefined;
  /** Read for each call, so that a reload applies at once. */
  readonly quotas: () => Quotas;
  /** Called after the database was replaced by an empty one while it was in use: the log has to be applied again. */
  readonly onRebuilt?: () => void;
  /** Called if a damaged or foreign file was moved aside. */
  readonly onMovedAside?: (moved: { readonly path: string; readonly why: string }) => void;
  /** The deadline of one call. Default 1000. */
  readonly call_ms?: number;
  /** The module of the threads. For tests. */
  readonly module?: URL;
}

export class SqliteStore implements IndexStore {
  readonly #init: SqliteStoreInit;
  readonly #call_ms: number;
  readonly #writer: DatabaseCalls;
  /** In memory, the writer. */
  readonly #readers: DatabaseCalls;
  #generation = 0;
  #state: DatabaseState = { epoch: '', applied: { size: 0, leaf: undefined } };
  /** The size that `applied` had: a database that was replaced is complete when it is reached again. */
  #applied_max = 0;
  #damage: string | undefined;

  private constructor(init: SqliteStoreInit) {
    this.#init = init;
    this.#call_ms = init.call_ms ?? CALL_MS_DEFAULT;
    const module = init.module ?? THREAD;
    const onDamage = (why: string): void => void this.#rebuild(why);
    this.#writer = new DatabaseCalls({
      name: 'index.db.write',
      threads: 1,
      queue_max: QUEUE_MAX,
      module,
      database: () => this.#database('writer'),
      onState: (state) => this.#setState(state),
      onDamage,
    });
    this.#readers =
      init.dir === undefined
        ? this.#writer
        : new DatabaseCalls({
            name: 'index.db.read',
            threads: READERS,
            queue_max: QUEUE_MAX,
            module,
            database: () => this.#database('reader'),
            onDamage,
          });
  }

  /** Rejects with `conflict` if another process uses the directory, or if the database has a newer version. */
  static async open(init: SqliteStoreInit): Promise<SqliteStore> {
    if (init.dir !== undefined) await makeDirectory(init.dir).catch(rethrowDisk);
    const store = new SqliteStore(init);
    try {
      await store.#open('open', []);
      await store.#startReaders();
      return store;
    } catch (error) {
      await store[Symbol.asyncDispose]();
      throw error;
    }
  }

  get problem(): string | undefined {
    if (this.#damage !== undefined) return this.#damage;
    if (this.#writer.isLate || this.#readers.isLate) return 'the index database does not answer';
    if (this.applied.size < this.#applied_max) return REBUILDING;
    return undefined;
  }

  get epoch(): string {
    return this.#state.epoch;
  }

  get applied(): LogPosition {
    return this.#state.applied;
  }

  /** Calls that wait for a thread. */
  get depth(): number {
    return this.#writer.depth + (this.#readers === this.#writer ? 0 : this.#readers.depth);
  }

  apply(changes: readonly LogChange[], applied: LogPosition): Promise<void> {
    return this.#write('apply', changes, applied);
  }

  async resetLog(): Promise<void> {
    this.#applied_max = 0;
    await this.#writer.call('resetLog', [], OPEN_MS);
  }

  async newEpoch(): Promise<string> {
    await this.#write('newEpoch');
    return this.epoch;
  }

  name(key: string, label: string): Promise<StoredName | undefined> {
    return this.#readNames('name', key, label);
  }

  history(key: string, label: string, limit: number): Promise<StoredRecord[]> {
    return this.#readNames('history', key, label, limit);
  }

  names(prefix: string, after: NamePosition | undefined, limit: number): Promise<StoredName[]> {
    return this.#readNames('names', prefix, after, limit);
  }

  countNames(key: string): Promise<number> {
    return this.#readNames('countNames', key);
  }

  highestSeq(key: string, label: string): Promise<{ seq: number; hash: Uint8Array } | undefined> {
    return this.#readNames('highestSeq', key, label);
  }

  saveSeen(record: StoredRecord, rival: StoredRecord | undefined, init: SaveSeenInit): Promise<boolean> {
    return this.#write('saveSeen', record, rival, init);
  }

  trust(): Promise<TrustedKey[]> {
    return this.#read('trust');
  }

  pins(): Promise<string[]> {
    return this.#read('pins');
  }

  announce(
    subject: string,
    entries: readonly AnnounceEntry[],
    withdraw: readonly Address[],
    now_ms: number,
    range?: AnnounceRange,
  ): Promise<Announced> {
    return this.#write('announce', subject, entries, withdraw, now_ms, range);
  }

  object(address: Address): Promise<OwnObject | undefined> {
    return this.#read('object', address);
  }

  objects(cursor: Uint8Array | undefined, limit: number): Promise<{ address: Address; routing_key: Uint8Array }[]> {
    return this.#read('objects', cursor, limit);
  }

  countObjects(): Promise<number> {
    return this.#read('countObjects');
  }

  readCursor(name: string): Promise<Uint8Array | undefined> {
    return this.#read('readCursor', name);
  }

  saveCursor(name: string, cursor: Uint8Array | undefined): Promise<void> {
    return this.#write('saveCursor', name, cursor);
  }

  dhtGet(key: string, now_ms: number): Promise<Uint8Array | undefined> {
    return this.#read('dhtGet', key, now_ms);
  }

  dhtPut(key: string, value: Uint8Array, init: DhtPutInit): Promise<void> {
    return this.#write('dhtPut', key, value, init);
  }

  dhtDelete(key: string): Promise<void> {
    return this.#write('dhtDelete', key);
  }

  dhtQuery(prefix: string, init: { now_ms: number; limit: number }): Promise<DhtEntry[]> {
    return this.#read('dhtQuery', prefix, init);
  }

  purgeExpired(now_ms: number, limit: number): Promise<number> {
    return this.#write('purgeExpired', now_ms, limit);
  }

  /** Ends the threads; calls that were accepted end first. Never rejects. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#readers !== this.#writer) await this.#readers.close();
    await this.#writer.run('close', [], this.#call_ms).catch(() => undefined);
    await this.#writer.close();
  }

  #read<F extends keyof Reads>(fn: F, ...args: Parameters<Reads[F]>): Promise<ReturnType<Reads[F]>> {
    return this.#readers.call(fn, args, this.#call_ms) as Promise<ReturnType<Reads[F]>>;
  }

  /** A database that lacks names which were acknowledged must not state that there are none. */
  async #readNames<F extends keyof Reads>(fn: F, ...args: Parameters<Reads[F]>): Promise<ReturnType<Reads[F]>> {
    this.#requireNames();
    const generation = this.#generation;
    const value = await this.#read(fn, ...args);
    this.#requireNames();
    if (generation !== this.#generation) throw notReady(REBUILDING);
    return value;
  }

  #requireNames(): void {
    if (this.#damage !== undefined) throw notReady(this.#damage);
    if (this.applied.size < this.#applied_max) throw notReady(REBUILDING);
  }

  #write<F extends keyof Writes>(fn: F, ...args: Parameters<Writes[F]>): Promise<ReturnType<Writes[F]>> {
    return this.#writer.call(fn, args, this.#call_ms) as Promise<ReturnType<Writes[F]>>;
  }

  #database(role: DatabaseInit['role']): DatabaseInit {
    const { dir, quotas } = this.#init;
    const path = dir === undefined ? undefined : join(dir, FILE);
    return { path, role, generation: this.#generation, quotas: quotas() };
  }

  /** A database in memory is empty after its thread was replaced. */
  #setState(state: DatabaseState): void {
    const isLost = this.#state.epoch !== '' && state.applied.size < this.#state.applied.size;
    this.#state = state;
    this.#applied_max = Math.max(this.#applied_max, state.applied.size);
    if (isLost && this.#applied_max > state.applied.size) this.#init.onRebuilt?.();
  }

  async #open(fn: 'open' | 'rebuild', args: readonly unknown[]): Promise<void> {
    const answer = await this.#writer.run<OpenedDatabase | { error: CallError }>(
      fn,
      [this.#database('writer'), ...args],
      OPEN_MS,
    );
    if ('error' in answer) throw asError(answer.error);
    if (answer.movedAside !== undefined) this.#init.onMovedAside?.(answer.movedAside);
    this.#setState({ epoch: answer.epoch, applied: answer.applied });
  }

  /** A thread needs longer to start than a call may take, on a busy machine. A failure is left to the first read. */
  async #startReaders(): Promise<void> {
    if (this.#readers === this.#writer) return;
    const starts = Array.from({ length: READERS }, () =>
      this.#readers.run('open', [this.#database('reader')], OPEN_MS).catch(() => undefined),
    );
    await Promise.all(starts);
  }

  /** Once at a time: all calls that met the damage report it. */
  async #rebuild(why: string): Promise<void> {
    if (this.#damage !== undefined) return;
    this.#damage = why;
    try {
      await this.#open('rebuild', [why]);
      // The readers open the new file from now on.
      this.#generation += 1;
      this.#damage = undefined;
    } catch (error) {
      this.#damage = `${why}; it could not be replaced: ${(error as Error).message}`;
    }
  }
}

const notReady = (problem: string): RonError =>
  new RonError('not_ready', problem, { op: 'db', retry_after_ms: RETRY_MS });

function asError({ code, message }: { code: ErrorCode; message: string }): RonError {
  return new RonError(code, message, { op: 'db' });
}
