/**
 * A bounded map that forgets what was used longest ago.
 *
 * Bound: `capacity` entries. Overflow: the least recently used entry goes. Cancellation: nothing waits.
 */
import { assert } from '@ron/kernel';

export class Lru<V> {
  readonly capacity: number;
  /** In order of use, the oldest first: a Map keeps insertion order, and use inserts again. */
  readonly #entries = new Map<string, V>();

  constructor(capacity: number) {
    assert(Number.isSafeInteger(capacity) && capacity > 0, `capacity ${capacity} is a positive whole number`);
    this.capacity = capacity;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): V | undefined {
    const value = this.#entries.get(key);
    if (value === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, value);
    return value;
  }

  set(key: string, value: V): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    if (this.#entries.size <= this.capacity) return;
    const [oldest] = this.#entries.keys();
    if (oldest !== undefined) this.#entries.delete(oldest);
  }

  clear(): void {
    this.#entries.clear();
  }
}
