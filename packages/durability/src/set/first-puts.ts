/**
 * Objects whose first put is under way: they are hidden until enough volumes have them durably, or the put has ended.
 *
 * Contract: `has` is true from the call of `run` until its put has ended. Bound: `PUTS_MAX` objects. Overflow: `busy`.
 */
import { chunkKey } from '@ron/cas';
import { RonError, touch } from '@ron/kernel';

const PUTS_MAX = 65_536;

export class FirstPuts {
  /** Puts under way, by object. */
  readonly #puts = new Map<string, number>();

  has(id: Uint8Array): boolean {
    touch(this);
    return this.#puts.size > 0 && this.#puts.has(chunkKey(id));
  }

  /** Calls `put` in the same step. */
  async run(id: Uint8Array, put: () => Promise<void>): Promise<void> {
    touch(this);
    if (this.#puts.size >= PUTS_MAX) {
      throw new RonError('busy', `${PUTS_MAX} new objects are being put`, { retry_after_ms: 1000 });
    }
    const key = chunkKey(id);
    this.#puts.set(key, (this.#puts.get(key) ?? 0) + 1);
    try {
      await put();
    } finally {
      this.#end(key);
    }
  }

  #end(key: string): void {
    touch(this);
    const left = (this.#puts.get(key) ?? 1) - 1;
    if (left > 0) this.#puts.set(key, left);
    else this.#puts.delete(key);
  }
}
