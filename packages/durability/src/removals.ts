/**
 * Orders copies of an object after or before its removal.
 *
 * Promise: whoever is about to put a copy of an object somewhere, because it was there a while ago, learns whether a
 * removal began since it looked. The volumes cannot tell: they know a removal when it is written, not when it is decided.
 * Bound: one entry for each object that is being removed or copied. Cancellation: none; no call waits.
 */
import { assert, touch } from '@ron/kernel';

interface Entry {
  /** Removals that have been decided since the entry is here. */
  removals: number;
  /** Of those, the ones that are being written. */
  removing: number;
  watchers: number;
}

/** What somebody knows who looked at an object. To be closed when it is done with it. */
export interface Watch extends Disposable {
  readonly isRemoved: boolean;
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

  /** A removal is decided; `end` when it is written, or failed. */
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

  /**
   * From now on removals are noticed. Those that are being written count too for a copy of something older; what is new
   * comes after them.
   */
  watch(key: string, what: 'old' | 'new'): Watch {
    touch(this);
    const entry = this.#entryOf(key);
    const known = what === 'new' ? entry.removals : entry.removals - entry.removing;
    entry.watchers += 1;
    let isOpen = true;
    return {
      get isRemoved() {
        return entry.removals > known;
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
      entry = { removals: 0, removing: 0, watchers: 0 };
      this.#entries.set(key, entry);
    }
    return entry;
  }

  #forget(key: string, entry: Entry): void {
    if (entry.removing === 0 && entry.watchers === 0) this.#entries.delete(key);
  }
}
