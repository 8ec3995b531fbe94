/**
 * A cache of verified bytes that keeps the most requested ones.
 *
 * Promise: `get` gives back exactly what was `put`. One sweep over many things does not push out what is used again and
 * again: an entry begins on probation and is protected only when it is asked for a second time.
 * What passes by once is not even copied: `offer` takes what it was offered before.
 * Bound: `bytes_max` over both parts, with a fixed cost for each entry; an entry larger than its share is not kept; keys of
 * as many bytes that were offered once: what comes again later than that would have been pushed out anyway. Overflow: the least recent entry
 * on probation goes, then the protected one that was longest not asked for. Cancellation: none.
 */
const PROTECTED_SHARE = 0.8;
const ENTRY_SHARE_MAX = 1 / 8;
/** What an entry costs besides its bytes: its key, its place in a map, the objects around it. */
const ENTRY_OVERHEAD_BYTES = 400;

interface Entry<V> {
  readonly value: V;
  readonly bytes: number;
  /** Asked for since it was last looked at. Cheaper than moving it at every hit. */
  used: boolean;
}

/** Keys in the order in which they came in or got another chance, oldest first: the order of a Map. */
class Part<V> {
  readonly entries = new Map<string, Entry<V>>();
  bytes = 0;

  add(key: string, entry: Entry<V>): void {
    this.entries.set(key, entry);
    this.bytes += entry.bytes;
  }

  take(key: string): Entry<V> | undefined {
    const entry = this.entries.get(key);
    if (entry === undefined) return undefined;
    this.entries.delete(key);
    this.bytes -= entry.bytes;
    return entry;
  }

  takeOldest(): [string, Entry<V>] | undefined {
    const key = this.entries.keys().next().value;
    if (key === undefined) return undefined;
    return [key, this.take(key) as Entry<V>];
  }
}

export class RamCache<V> {
  readonly bytes_max: number;
  readonly #probation = new Part<V>();
  readonly #protected = new Part<V>();
  /** Keys that were offered once, oldest first. */
  readonly #offered = new Map<string, number>();
  #offered_bytes = 0;
  hits_total = 0;
  misses_total = 0;

  readonly #entry_bytes_max: number;

  /** `entry_share_max`: the largest part of `bytes_max` that one entry may take. Default an eighth. */
  constructor(bytes_max: number, { entry_share_max = ENTRY_SHARE_MAX }: { entry_share_max?: number } = {}) {
    this.bytes_max = bytes_max;
    this.#entry_bytes_max = bytes_max * entry_share_max;
  }

  get used_bytes(): number {
    return this.#probation.bytes + this.#protected.bytes;
  }

  get(key: string): V | undefined {
    const kept = this.#protected.entries.get(key);
    if (kept !== undefined) {
      this.hits_total += 1;
      kept.used = true;
      return kept.value;
    }
    const entry = this.#probation.take(key);
    if (entry === undefined) {
      this.misses_total += 1;
      return undefined;
    }
    this.hits_total += 1;
    this.#protected.add(key, entry);
    this.#demote();
    return entry.value;
  }

  /** Whether it is kept; asking this way is not a use. */
  has(key: string): boolean {
    return this.#probation.entries.has(key) || this.#protected.entries.has(key);
  }

  put(key: string, value: V, bytes: number): void {
    if (bytes > this.#entry_bytes_max) return;
    this.delete(key);
    this.#probation.add(key, { value, bytes: bytes + ENTRY_OVERHEAD_BYTES, used: false });
    while (this.used_bytes > this.bytes_max) {
      if ((this.#probation.takeOldest() ?? this.#protected.takeOldest()) === undefined) return;
    }
  }

  /** Keeps what `make` gives, if it was offered before: reading something once is no reason to keep it. */
  offer(key: string, bytes: number, make: () => V): void {
    if (bytes > this.#entry_bytes_max) return;
    if (this.#withdraw(key)) return this.put(key, make(), bytes);
    this.#offered.set(key, bytes + ENTRY_OVERHEAD_BYTES);
    this.#offered_bytes += bytes + ENTRY_OVERHEAD_BYTES;
    while (this.#offered_bytes > this.bytes_max) this.#withdraw(this.#offered.keys().next().value!);
  }

  #withdraw(key: string): boolean {
    this.#offered_bytes -= this.#offered.get(key) ?? 0;
    return this.#offered.delete(key);
  }

  delete(key: string): void {
    this.#probation.take(key);
    this.#protected.take(key);
  }

  /** Keeps the protected part within its share; what falls out gets another chance on probation. */
  #demote(): void {
    while (this.#protected.bytes > this.bytes_max * PROTECTED_SHARE) {
      const oldest = this.#protected.takeOldest();
      if (oldest === undefined) return;
      const [key, entry] = oldest;
      (entry.used ? this.#protected : this.#probation).add(key, entry);
      entry.used = false;
    }
  }
}
