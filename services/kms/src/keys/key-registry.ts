/**
 * The registry of keys: serialises changes and publishes snapshots for readers.
 *
 * Contract: changes are applied one after another, each sees all earlier ones, and readers see a change only once it is on
 * disk. The version of a key only increases. A refused change, or one that cannot be written, has no effect.
 * Bound: `CHANGES_WAITING_MAX` waiting changes; `keys_max` keys, `VERSIONS_MAX` versions each. Overflow: `busy`,
 * `storage_full`.
 * Cancellation: a waiting change is withdrawn; a change that is being written runs to its end.
 */
import { GroupCommit } from '@ron/log';
import { NEVER, RonError, Snapshot } from '@ron/kernel';
import { KeyIndex } from './key-index.ts';
import { headOf, type KeyDocument, type KeyRecord } from './key-record.ts';

/** Stores the document: a sealed file, or memory. */
export interface KeyDocumentStore {
  readonly value: KeyDocument;
  /** Incremented by every replace and bound to the content, so that a rollback is detectable. */
  readonly version: number;
  replace(next: KeyDocument, signal: AbortSignal): Promise<unknown>;
}

export interface KeyRegistryInit {
  readonly store: KeyDocumentStore;
  readonly keys_max: number;
}

const CHANGES_WAITING_MAX = 256;
export const VERSIONS_MAX = 4096;

/** Returns the changed or new record, given the current keys; throws to refuse the change. */
export type Edit = (index: KeyIndex) => KeyRecord;

type Outcome = { readonly record: KeyRecord; readonly error?: undefined } | { readonly error: unknown };

export class KeyRegistry implements AsyncDisposable {
  readonly #store: KeyDocumentStore;
  readonly #keys_max: number;
  readonly #index: Snapshot<KeyIndex>;
  readonly #changes: GroupCommit<Edit, Outcome>;

  constructor({ store, keys_max }: KeyRegistryInit) {
    this.#store = store;
    this.#keys_max = keys_max;
    this.#index = new Snapshot('key_index', KeyIndex.of(store.value));
    this.#changes = new GroupCommit({
      name: 'key_registry',
      queue_bytes_max: CHANGES_WAITING_MAX,
      batch_bytes_max: CHANGES_WAITING_MAX,
      commit: (edits) => this.#commit(edits),
    });
  }

  /** The current keys. Load it once per operation to get a consistent view. */
  get index(): KeyIndex {
    return this.#index.load();
  }

  /** The version of the document on disk. */
  get version(): number {
    return this.#store.version;
  }

  /** Applies a change durably and returns the resulting record. */
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
      throw new RonError('storage_full', `the limit of ${this.#keys_max} keys (kms.keys_max) is reached`);
    }
    if (record.versions.length > VERSIONS_MAX) {
      throw new RonError('storage_full', `the key has reached its limit of ${VERSIONS_MAX} versions`);
    }
    if (known !== undefined && headOf(record).version < headOf(known).version) {
      throw new RonError('internal', `assertion failed: versions of ${record.name} only grow`);
    }
  }
}
