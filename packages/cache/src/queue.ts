/**
 * The entries of a cache in the order in which they came or were given another round: a doubly linked list.
 *
 * Contract: every operation is O(1) and allocates nothing. An entry is in one queue, or in none. `cursor` is a place in the
 * queue that stays valid while entries come and go.
 */

export class Entry<V> {
  readonly key: string;
  /** Undefined for a negative entry. */
  value: V | undefined;
  /** The bytes that the entry is charged for. */
  bytes: number;
  /** When it becomes stale and when it expires, in ms of the cache's clock; 0: never. Whole numbers take less memory. */
  fresh_until = 0;
  stale_until = 0;
  /** Requests since it came or was last passed over by an eviction, up to a small maximum. */
  uses = 0;
  queue: Queue<V> | undefined = undefined;
  older: Entry<V> | undefined = undefined;
  newer: Entry<V> | undefined = undefined;

  constructor(key: string, value: V | undefined, bytes: number) {
    this.key = key;
    this.value = value;
    this.bytes = bytes;
  }
}

export class Queue<V> {
  bytes = 0;
  count = 0;
  oldest: Entry<V> | undefined;
  #newest: Entry<V> | undefined;
  #cursor: Entry<V> | undefined;

  push(entry: Entry<V>): void {
    entry.queue = this;
    entry.older = this.#newest;
    entry.newer = undefined;
    if (this.#newest === undefined) this.oldest = entry;
    else this.#newest.newer = entry;
    this.#newest = entry;
    this.bytes += entry.bytes;
    this.count += 1;
  }

  remove(entry: Entry<V>): void {
    const { older, newer } = entry;
    if (this.#cursor === entry) this.#cursor = newer;
    if (older === undefined) this.oldest = newer;
    else older.newer = newer;
    if (newer === undefined) this.#newest = older;
    else newer.older = older;
    entry.queue = undefined;
    entry.older = undefined;
    entry.newer = undefined;
    this.bytes -= entry.bytes;
    this.count -= 1;
  }

  /** The entry at the cursor, which moves on; after the newest one it begins again with the oldest. */
  next(): Entry<V> | undefined {
    const entry = this.#cursor ?? this.oldest;
    this.#cursor = entry?.newer;
    return entry;
  }

  clear(): void {
    this.bytes = 0;
    this.count = 0;
    this.oldest = undefined;
    this.#newest = undefined;
    this.#cursor = undefined;
  }
}
