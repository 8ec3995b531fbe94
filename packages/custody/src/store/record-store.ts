/**
 * Tables of records that are changed atomically: the state of kms.
 *
 * Contract: `commit` runs an edit on a draft that has all earlier edits, and resolves when its changes are on stable
 * storage. An edit is applied as a whole or not at all: if it throws, its caller gets the error and the other edits of the
 * batch are not affected; if the batch cannot be written, none of its edits has an effect. Readers see only changes that
 * are on stable storage. An edit is synchronous.
 * Bound: `QUEUE_BYTES_MAX` bytes of edits wait; a batch has `BATCH_BYTES_MAX`. Overflow: `busy`; a full disk is
 * `storage_full`.
 * Cancellation: an edit whose signal aborts while it waits is not run. A batch that is being written runs to its end.
 * A store that cannot continue (`failed`) refuses waiting and new edits at once. Opening it again in a new process repairs it.
 */
import { GroupCommit } from '@ron/log';
import { RonError } from '@ron/kernel';

const QUEUE_BYTES_MAX = 4 * 1024 * 1024;
/** Also bounds the time that the edits of a batch hold the event loop: 64 edits of the default size. */
const BATCH_BYTES_MAX = 256 * 1024;
/** The assumed size of an edit. */
const EDIT_BYTES = 4096;
export const KEY_CHARS_MAX = 512;
const VALUE_BYTES_MAX = 2 * 1024 * 1024;

export interface Reader {
  /** The returned bytes belong to the caller. */
  get(table: string, key: string): Uint8Array | undefined;
  has(table: string, key: string): boolean;
  count(table: string): number;
}

/** The state that an edit changes: that of the store, with the changes of all earlier edits. */
export interface Draft extends Reader {
  /** `decoded`: the record as an object, for later edits of the same batch. */
  put(table: string, key: string, value: Uint8Array, decoded?: object): void;
  /** The object of a record that an earlier edit of this batch put. */
  decoded(table: string, key: string): object | undefined;
  remove(table: string, key: string): void;
  /** Calls `publish` once the changes are on stable storage, before any later edit runs. It must not throw. */
  onCommitted(publish: () => void): void;
}

export interface RangeInit {
  /** Inclusive. */
  readonly start: string;
  /** Exclusive. */
  readonly end: string;
  readonly limit: number;
}

export interface RangeRecord {
  readonly key: string;
  readonly value: Uint8Array;
}

export interface Change {
  readonly table: string;
  readonly key: string;
  /** Undefined: the record is removed. */
  readonly value: Uint8Array | undefined;
}

export type Edit<A> = (draft: Draft) => A;

export interface RecordStore extends Reader, AsyncDisposable {
  /** Records in the order of their keys. */
  range(table: string, init: RangeInit): RangeRecord[];
  /** Reads the records into memory without blocking the event loop, so that `get` does not wait for the disk. */
  prefetch(table: string, keys: readonly string[], signal: AbortSignal): Promise<void>;
  /** `bytes`: about how much it writes, if that is more than 4 KiB. */
  commit<A>(edit: Edit<A>, signal: AbortSignal, bytes?: number): Promise<A>;
  /** Resolves with the reason once the store cannot continue; the process must end. Pending otherwise. */
  readonly failed: Promise<RonError>;
  /** That reason. */
  readonly problem: string | undefined;
  close(): Promise<void>;
}

type Outcome = { readonly value: unknown } | { readonly refused: unknown };

/** The part that all stores share: edits in batches. */
export abstract class BatchedStore implements RecordStore {
  readonly #commits = new GroupCommit<Edit<unknown>, Outcome>({
    name: 'record_store',
    queue_bytes_max: QUEUE_BYTES_MAX,
    batch_bytes_max: BATCH_BYTES_MAX,
    commit: (edits) => this.#commit(edits),
  });
  readonly #failed = Promise.withResolvers<RonError>();
  #failure: RonError | undefined;

  abstract get(table: string, key: string): Uint8Array | undefined;
  abstract has(table: string, key: string): boolean;
  abstract count(table: string): number;
  abstract range(table: string, init: RangeInit): RangeRecord[];
  abstract prefetch(table: string, keys: readonly string[], signal: AbortSignal): Promise<void>;
  /** Applies all changes, or none. `added`: by how many records each table grows. */
  protected abstract write(changes: readonly Change[], added: ReadonlyMap<string, number>): Promise<void>;

  get failed(): Promise<RonError> {
    return this.#failed.promise;
  }

  get problem(): string | undefined {
    return this.#failure?.message;
  }

  /** Refuses all edits from now on. Returns the first reason. */
  protected fail(reason: RonError): RonError {
    this.#failure ??= reason;
    this.#failed.resolve(this.#failure);
    return this.#failure;
  }

  async commit<A>(edit: Edit<A>, signal: AbortSignal, bytes = EDIT_BYTES): Promise<A> {
    if (this.#failure !== undefined) throw this.#failure;
    const outcome = await this.#commits.append(edit, Math.max(bytes, EDIT_BYTES), signal);
    if ('refused' in outcome) throw outcome.refused;
    return outcome.value as A;
  }

  async close(): Promise<void> {
    await this.#commits.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #commit(edits: readonly Edit<unknown>[]): Promise<Outcome[]> {
    if (this.#failure !== undefined) throw this.#failure;
    const batch = new Overlay(this);
    const outcomes = edits.map((edit): Outcome => {
      const draft = new Overlay(batch);
      try {
        const value = edit(draft);
        batch.add(draft);
        return { value };
      } catch (error) {
        return { refused: error };
      }
    });
    const changes = batch.changes();
    if (changes.length > 0) await this.write(changes, batch.added);
    batch.publish();
    return outcomes;
  }
}

interface Value {
  readonly bytes: Uint8Array | undefined;
  readonly decoded: object | undefined;
}

/** Changes on top of a reader. */
class Overlay implements Draft {
  readonly #below: Reader;
  readonly #tables = new Map<string, Map<string, Value>>();
  readonly #added = new Map<string, number>();
  readonly #publish: (() => void)[] = [];

  constructor(below: Reader) {
    this.#below = below;
  }

  get(table: string, key: string): Uint8Array | undefined {
    const changed = this.#tables.get(table)?.get(key);
    return changed === undefined ? this.#below.get(table, key) : changed.bytes?.slice();
  }

  decoded(table: string, key: string): object | undefined {
    const changed = this.#tables.get(table)?.get(key);
    if (changed !== undefined) return changed.decoded;
    return this.#below instanceof Overlay ? this.#below.decoded(table, key) : undefined;
  }

  onCommitted(publish: () => void): void {
    this.#publish.push(publish);
  }

  publish(): void {
    for (const each of this.#publish) each();
  }

  count(table: string): number {
    return this.#below.count(table) + (this.#added.get(table) ?? 0);
  }

  put(table: string, key: string, value: Uint8Array, decoded?: object): void {
    if (key.length === 0 || key.length > KEY_CHARS_MAX) {
      throw new RonError('validation', `a record has a key of 1 to ${KEY_CHARS_MAX} characters`);
    }
    if (value.length > VALUE_BYTES_MAX) {
      throw new RonError('payload_too_large', `the record has ${value.length} bytes, the limit is ${VALUE_BYTES_MAX}`);
    }
    if (!this.has(table, key)) this.#count(table, 1);
    this.#set(table, key, { bytes: value, decoded });
  }

  remove(table: string, key: string): void {
    if (!this.has(table, key)) return;
    this.#count(table, -1);
    this.#set(table, key, { bytes: undefined, decoded: undefined });
  }

  has(table: string, key: string): boolean {
    const changed = this.#tables.get(table)?.get(key);
    return changed === undefined ? this.#below.has(table, key) : changed.bytes !== undefined;
  }

  add(draft: Overlay): void {
    for (const [table, changed] of draft.#tables) {
      for (const [key, value] of changed) this.#set(table, key, value);
    }
    for (const [table, count] of draft.#added) this.#count(table, count);
    this.#publish.push(...draft.#publish);
  }

  get added(): ReadonlyMap<string, number> {
    return this.#added;
  }

  changes(): Change[] {
    return [...this.#tables].flatMap(([table, changed]) =>
      [...changed].map(([key, { bytes }]) => ({ table, key, value: bytes })),
    );
  }

  #set(table: string, key: string, value: Value): void {
    const changed = this.#tables.get(table);
    if (changed === undefined) this.#tables.set(table, new Map([[key, value]]));
    else changed.set(key, value);
  }

  #count(table: string, count: number): void {
    this.#added.set(table, (this.#added.get(table) ?? 0) + count);
  }
}
