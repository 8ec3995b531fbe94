/**
 * The one place where keys change, and the snapshot from which everybody reads them.
 *
 * Promise: changes happen one after another, each sees all before it, and a reader sees a change only when it is on
 * disk. Versions of a key only grow. A change that is refused, or whose document cannot be written, leaves no trace.
 * Bound: `CHANGES_WAITING_MAX` changes wait; `keys_max` keys, `VERSIONS_MAX` versions of one. Overflow: `busy`; `storage_full`.
 * Cancellation: a change that waits is taken back; one that is being written ends as the disk decides.
 */
import { GroupCommit } from '@ron/log';
import { NEVER, RonError, Snapshot } from '@ron/kernel';
import { KeyIndex } from './key-index.ts';
import { headOf, type KeyDocument, type KeyRecord } from './key-record.ts';

/** Where the document lies: a sealed file, or memory. */
export interface KeyStore {
  readonly value: KeyDocument;
  /** Grows with each replace; bound to the content, so that an older file shows. */
  readonly version: number;
  replace(next: KeyDocument, signal: AbortSignal): Promise<unknown>;
}

export interface KeyBookInit {
  readonly store: KeyStore;
  readonly keys_max: number;
}

const CHANGES_WAITING_MAX = 256;
export const VERSIONS_MAX = 4096;

/** Looks at the keys as they are and gives the one that changes, as it is to be; throws when it may not. */
export type Edit = (index: KeyIndex) => KeyRecord;

type Outcome = { readonly record: KeyRecord; readonly error?: undefined } | { readonly error: unknown };

export class KeyBook implements AsyncDisposable {
  readonly #store: KeyStore;
  readonly #keys_max: number;
  readonly #index: Snapshot<KeyIndex>;
  readonly #changes: GroupCommit<Edit, Outcome>;

  constructor({ store, keys_max }: KeyBookInit) {
    this.#store = store;
    this.#keys_max = keys_max;
    this.#index = new Snapshot('key_index', KeyIndex.of(store.value));
    this.#changes = new GroupCommit({
      name: 'key_book',
      queue_bytes_max: CHANGES_WAITING_MAX,
      batch_bytes_max: CHANGES_WAITING_MAX,
      commit: (edits) => this.#commit(edits),
    });
  }

  /** The keys now. Load once and use that for everything that belongs together. */
  get index(): KeyIndex {
    return this.#index.load();
  }

  /** Of the document on disk. */
  get version(): number {
    return this.#store.version;
  }

  /** Makes a change durable and gives the key as it is then. */
  async change(edit: Edit, signal: AbortSignal): Promise<KeyRecord> {
    const outcome = await this.#changes.append(edit, 1, signal);
    if (!('record' in outcome)) throw outcome.error;
    return outcome.record;
  }

  close(): Promise<void> {
    return this.#changes.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #commit(edits: readonly Edit[]): Promise<readonly Outcome[]> {
    // [kms I-2] One commit runs at a time, and it alone replaces the index.
    const before = this.#index.load();
    let next = before;
    const outcomes = edits.map((edit): Outcome => {
      try {
        const record = edit(next);
        this.#check(next, record);
        next = next.with(record);
        return { record };
      } catch (error) {
        return { error };
      }
    });
    if (next !== before) {
      // [kms I-1] Signers read the snapshot; none of them waits for this write.
      await this.#store.replace(next.document, NEVER);
      this.#index.swap(next);
    }
    return outcomes;
  }

  #check(index: KeyIndex, record: KeyRecord): void {
    const known = index.get(record.name);
    if (known === undefined && index.size >= this.#keys_max) {
      throw new RonError('storage_full', `there are ${this.#keys_max} keys, as many as kms.keys_max allows`);
    }
    if (record.versions.length > VERSIONS_MAX) {
      throw new RonError('storage_full', `a key has at most ${VERSIONS_MAX} versions`);
    }
    if (known !== undefined && headOf(record).version < headOf(known).version) {
      throw new RonError('internal', `assertion failed: versions of ${record.name} only grow`);
    }
  }
}
