/**
 * Orders copies of an object after or before its removal and the replacement of its record.
 *
 * Contract: a task that copies an object's record to another volume learns whether a removal or a replacement began since it
 * read the record. The volumes do not know: they see a decision when it is written, not when it is made.
 * Bound: one entry for each object that is being removed or copied.
 */
import { assert, touch } from '@ron/kernel';

interface Entry {
  /** Removals decided since the entry exists. */
  removals: number;
  /** Of those, the ones that are being written. */
  removing: number;
  /** The same for replacements of the record. */
  replacements: number;
  replacing: number;
  watchers: number;
}

/** A watch on one object while a task works on it. The task closes it. */
export interface Watch extends Disposable {
  readonly isRemoved: boolean;
  /** A replacement was being written when the watch began, or was decided since. */
  readonly isReplaced: boolean;
}

export class Removals {
  readonly #entries = new Map<string, Entry>();

  get size(): number {
    return this.#entries.size;
  }

  isRemoving(key: string): boolean {
    touch(this);
    return (this.#entries.get(key)?.removing ?? 0) > 0;
  }

  /** A removal is decided. The caller calls `end` once it is written or has failed. */
  begin(key: string): void {
    touch(this);
    const entry = this.#entryOf(key);
    entry.removals += 1;
    entry.removing += 1;
  }

  end(key: string): void {
    touch(this);
    const entry = this.#entries.get(key);
    assert(entry !== undefined && entry.removing > 0, 'a removal ends once');
    entry.removing -= 1;
    this.#forget(key, entry);
  }

  /** A replacement of the object's record is decided. The caller disposes of it once it is written or has failed. */
  replace(key: string): Disposable {
    touch(this);
    const entry = this.#entryOf(key);
    entry.replacements += 1;
    entry.replacing += 1;
    return {
      [Symbol.dispose]: () => {
        entry.replacing -= 1;
        this.#forget(key, entry);
      },
    };
  }

  /**
   * Reports removals from now on. For a copy of an old record, removals being written count too; a new record comes after
   * them.
   */
  watch(key: string, age: 'old' | 'new'): Watch {
    touch(this);
    const entry = this.#entryOf(key);
    const known = age === 'new' ? entry.removals : entry.removals - entry.removing;
    const replaced = entry.replacements - entry.replacing;
    entry.watchers += 1;
    let isOpen = true;
    return {
      get isRemoved() {
        return entry.removals > known;
      },
      get isReplaced() {
        return entry.replacements > replaced;
      },
      [Symbol.dispose]: () => {
        if (!isOpen) return;
        isOpen = false;
        entry.watchers -= 1;
        this.#forget(key, entry);
      },
    };
  }

  #entryOf(key: string): Entry {
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      entry = { removals: 0, removing: 0, replacements: 0, replacing: 0, watchers: 0 };
      this.#entries.set(key, entry);
    }
    return entry;
  }

  #forget(key: string, entry: Entry): void {
    if (entry.removing === 0 && entry.replacing === 0 && entry.watchers === 0) this.#entries.delete(key);
  }
}
