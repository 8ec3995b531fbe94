/**
 * A cache in memory, bounded by bytes or entries or both, with expiry, negative entries and resistance to scans.
 *
 * Contract: `get` returns the value that was last set for the key, or undefined. An entry is fresh for `ttl_ms`, then stale
 * for `stale_ms`, then expired, each never longer and at most 1 ms shorter; with a `ttl_ms` of 0 it is never fresh, and
 * without one it stays fresh. `get`, `peek` and `has` see fresh values only; `find` returns the state too, and gives an
 * expired entry once more while it is removed, so that it can be revalidated. A negative entry records that the key has no
 * value, with its own `ttl_ms`.
 * Bound: `bytes_max` and `entries_max`. An entry is charged for its value, as given by the caller, its key and
 * `ENTRY_OVERHEAD_BYTES`; `bytes` adds the fingerprints of evicted keys. Expired entries are removed when they are met, and
 * each `set` checks two others: no timers. Overflow: eviction. An entry above `entry_bytes_max` is not kept, nor is the
 * former value of its key. Cost: get is one map lookup; set is O(1) for each entry that it evicts.
 * Hook: `onEvict` is called once for each entry that was evicted or expired, after the operation that removed it is
 * complete. It may use the cache, but within it nothing is evicted or expires: a `set` that does not fit is rejected. So a
 * hook cannot cause calls of the hook, and every operation ends.
 *
 * Eviction is S3-FIFO: new entries pass through a small queue, a tenth of the cache; those that are requested there move to
 * the main queue, and so do keys that return soon after they were evicted. Entries of the main queue get another round for
 * each use, at most three. It was chosen by measurement (`test/policies.bench.ts`). With Zipf 1.0 over 100 000 keys, room
 * for 10 000 and scans of 20 000 keys, the hit ratio of the Zipf keys is 78.1 %; SIEVE and a segmented LRU
 * have 77.4 %, W-TinyLFU 77.3 %, LRU 69.0 %. Without scans W-TinyLFU is better, by at most 0.6 points.
 *
 *     const cache = new Cache<Tile>({ bytes_max: 64 * MIB, onEvict: (key) => log.debug({ key }, 'evicted') });
 *     cache.set(key, tile, tile.bytes.length, { ttl_ms: 60_000, stale_ms: 300_000 });
 *     cache.setNegative(other, { ttl_ms: 10_000 });
 *     const found = cache.find(key); // { state: 'fresh', value: tile, isNegative: false, ttl_ms: 59_990 }
 *     if (found?.state === 'stale') revalidateInBackground(key);
 */
import { assert, sched, touch } from '@ron/kernel';
import { Ghosts } from './ghosts.ts';
import { Entry, Queue } from './queue.ts';

export interface CacheInit<V> {
  /** Default: no bound by bytes. */
  bytes_max?: number;
  /** Default: no bound by entries. */
  entries_max?: number;
  /** The largest charge of one entry. Default an eighth of `bytes_max`. */
  entry_bytes_max?: number;
  /** Called after an entry was evicted for room or found expired. See above for its use of the cache. Must not throw. */
  onEvict?: (key: string, value: V | undefined, why: 'room' | 'expired') => void;
}

export interface Lifetime {
  /** Default: unlimited. */
  ttl_ms?: number;
  /** How long it may be served stale after that. Infinity: until it is evicted. Default 0. */
  stale_ms?: number;
}

export interface Found<V> {
  readonly state: 'fresh' | 'stale' | 'expired';
  /** Undefined for a negative entry. */
  readonly value: V | undefined;
  readonly isNegative: boolean;
  /** How long it is still fresh; 0 or less when it is not. */
  readonly ttl_ms: number;
}

/** Measured: the entry, its place in the map, and the headers of the key string. */
export const ENTRY_OVERHEAD_BYTES = 160;
const SMALL_SHARE = 0.1;
const ENTRY_SHARE_MAX = 1 / 8;
const USES_MAX = 3;
/** Entries that one eviction gives another round before it evicts the next one regardless. */
const MOVES_MAX = 64;
/** Entries that each `set` checks for expiry. */
const SWEEP_STEPS = 2;
/** Of `bytes_max`, for fingerprints. A cache below 6 KiB keeps none. */
const GHOST_SHARE = 1 / 32;
const GHOST_BYTES = 12;
const GHOSTS_MIN = 16;
const TWO_BYTE = /[\u0100-\uffff]/;

/** Undefined is not a value: it is the answer for a key without one. */
type Value = object | string | number | boolean;

export class Cache<V extends Value> {
  readonly bytes_max: number;
  readonly entries_max: number;
  /** Fresh values given, stale entries given, negative entries given, and requests for anything else. */
  hits_total = 0;
  stale_hits_total = 0;
  negative_hits_total = 0;
  misses_total = 0;
  /** Entries evicted for room, entries removed because they expired, and values too large to keep or without room. */
  evictions_total = 0;
  expirations_total = 0;
  rejections_total = 0;
  readonly #entry_bytes_max: number;
  readonly #onEvict: CacheInit<V>['onEvict'];
  readonly #entries = new Map<string, Entry<V>>();
  readonly #small = new Queue<V>();
  readonly #main = new Queue<V>();
  readonly #ghosts: Ghosts;
  /** The clock counts from here, so that times are small whole numbers, and never 0: that means unlimited. */
  readonly #origin_ms = sched.now_ms() - 2;
  /** Entries that were removed by the operation under way and that the hook was not called for yet. */
  #gone: { readonly entry: Entry<V>; readonly why: 'room' | 'expired' }[] = [];
  #isInHook = false;
  /** Whether an entry with a lifetime was ever set: without one nothing is swept. */
  #expires = false;

  constructor(init: CacheInit<V>) {
    const { bytes_max = Infinity, entries_max = Infinity } = init;
    assert(bytes_max >= 0 && entries_max >= 0, 'cache: bounds are not negative');
    assert(bytes_max < Infinity || entries_max < Infinity, 'cache: bytes_max or entries_max is finite');
    this.bytes_max = bytes_max;
    this.entries_max = entries_max;
    const { entry_bytes_max = bytes_max * ENTRY_SHARE_MAX } = init;
    assert(entry_bytes_max >= 0, 'cache: entry_bytes_max is not negative');
    this.#entry_bytes_max = Math.min(entry_bytes_max, bytes_max);
    this.#onEvict = init.onEvict;
    this.#ghosts = new Ghosts({
      window: bytes_max < Infinity ? bytes_max : entries_max,
      slots_max: Math.min((bytes_max * GHOST_SHARE) / GHOST_BYTES, Math.max(entries_max * 2, GHOSTS_MIN)),
    });
  }

  get size(): number {
    touch(this);
    return this.#entries.size;
  }

  /** The memory that the entries are charged for, and that of the fingerprints. */
  get bytes(): number {
    touch(this);
    return this.#small.bytes + this.#main.bytes + this.#ghosts.bytes;
  }

  /** The fresh value. */
  get(key: string): V | undefined {
    touch(this);
    const entry = this.#entries.get(key);
    if (entry === undefined || !this.#isFresh(entry) || entry.value === undefined) {
      this.misses_total += 1;
      return undefined;
    }
    if (entry.uses < USES_MAX) entry.uses += 1;
    this.hits_total += 1;
    return entry.value;
  }

  /** The entry and its state; undefined when there is none. An expired one is removed. */
  find(key: string): Found<V> | undefined {
    touch(this);
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      this.misses_total += 1;
      return undefined;
    }
    const now_ms = entry.fresh_until === 0 ? 0 : this.#now_ms();
    const state = stateOf(entry, now_ms);
    const isNegative = entry.value === undefined;
    if (entry.uses < USES_MAX) entry.uses += 1;
    if (state === 'expired') {
      this.misses_total += 1;
      this.#expire(entry);
      this.#callHook();
    } else if (state === 'stale') this.stale_hits_total += 1;
    else if (isNegative) this.negative_hits_total += 1;
    else this.hits_total += 1;
    const ttl_ms = entry.fresh_until === 0 ? Infinity : entry.fresh_until - now_ms;
    return { state, value: entry.value, isNegative, ttl_ms };
  }

  /** The entry and its state, without counting as a request. An expired one stays. */
  inspect(key: string): Pick<Found<V>, 'state' | 'value' | 'isNegative'> | undefined {
    touch(this);
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    const state = stateOf(entry, entry.fresh_until === 0 ? 0 : this.#now_ms());
    return { state, value: entry.value, isNegative: entry.value === undefined };
  }

  /** The fresh value, without counting as a request. */
  peek(key: string): V | undefined {
    touch(this);
    const entry = this.#entries.get(key);
    return entry !== undefined && this.#isFresh(entry) ? entry.value : undefined;
  }

  /** Whether there is a fresh value. Does not count as a request. */
  has(key: string): boolean {
    return this.peek(key) !== undefined;
  }

  /** `bytes`: the memory that the value retains. False when it is too large to keep. */
  set(key: string, value: V, bytes: number, lifetime?: Lifetime): boolean {
    touch(this);
    return this.#put(key, value, bytes, lifetime);
  }

  /** Records that the key has no value. */
  setNegative(key: string, lifetime: Lifetime & { ttl_ms: number }): boolean {
    touch(this);
    return this.#put(key, undefined, 0, lifetime);
  }

  /**
   * Keeps the value that `make` gives if the key was offered or evicted not long ago: a value that is read once costs no
   * copy. False when it was not kept.
   */
  offer(key: string, bytes: number, make: () => V): boolean {
    touch(this);
    const charge = this.#chargeOf(key, bytes);
    if (charge > this.#entry_bytes_max) return false;
    if (this.#entries.has(key) || this.#ghosts.has(key)) return this.#put(key, make(), bytes, undefined);
    // In a hook nothing is evicted, and the fingerprint may need room.
    if (this.#isInHook) return false;
    this.#ghosts.add(key, this.#weightOf(charge));
    this.#makeRoom(0, 0);
    this.#callHook();
    return false;
  }

  /** Whether there was an entry, in any state. */
  delete(key: string): boolean {
    touch(this);
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#remove(entry);
    return entry !== undefined;
  }

  /** Deletes the entries in any state whose key matches; returns their number. One step for all of them. */
  deleteWhere(matches: (key: string, value: V | undefined) => boolean): number {
    touch(this);
    let deleted = 0;
    for (const entry of this.#entries.values()) {
      if (!matches(entry.key, entry.value)) continue;
      this.#remove(entry);
      deleted += 1;
    }
    return deleted;
  }

  clear(): void {
    touch(this);
    this.#entries.clear();
    this.#small.clear();
    this.#main.clear();
    this.#ghosts.clear();
  }

  /** Removes the expired ones among the next `steps` entries; the next call continues from there. Returns their number. */
  sweep(steps: number): number {
    touch(this);
    const expired = this.#sweep(steps);
    this.#callHook();
    return expired;
  }

  #sweep(steps: number): number {
    if (!this.#expires || this.#isInHook) return 0;
    const now_ms = this.#now_ms();
    let expired = 0;
    for (let step = 0; step < steps; step++) {
      // The small queue is a tenth of the cache and turns over by itself.
      const entry = (step % 2 === 0 ? this.#main : this.#small).next();
      if (entry === undefined || stateOf(entry, now_ms) !== 'expired') continue;
      this.#expire(entry);
      expired += 1;
    }
    return expired;
  }

  #put(key: string, value: V | undefined, bytes: number, lifetime: Lifetime | undefined): boolean {
    const { ttl_ms = Infinity, stale_ms = 0 } = lifetime ?? {};
    assert(!Number.isNaN(ttl_ms) && !Number.isNaN(stale_ms), 'cache: a lifetime is a number');
    const charge = this.#chargeOf(key, bytes);
    const former = this.#entries.get(key);
    // Before the former one goes: its queue decides where the new one comes.
    const queue = former?.queue ?? (this.#ghosts.take(key) ? this.#main : this.#small);
    if (former !== undefined) this.#remove(former);
    if (charge > this.#entry_bytes_max || this.entries_max < 1) {
      this.rejections_total += 1;
      return false;
    }
    this.#sweep(SWEEP_STEPS);
    if (!this.#makeRoom(charge, 1)) {
      this.rejections_total += 1;
      return false;
    }
    const entry = new Entry(key, value, charge);
    entry.uses = former?.uses ?? 0;
    if (ttl_ms < Infinity) this.#limit(entry, ttl_ms, stale_ms);
    this.#entries.set(key, entry);
    queue.push(entry);
    this.#callHook();
    return true;
  }

  /** Rounds down: an entry may live up to 1 ms shorter than requested, never longer. */
  #limit(entry: Entry<V>, ttl_ms: number, stale_ms: number): void {
    this.#expires = true;
    const fresh_until = this.#now_ms() + Math.max(0, ttl_ms);
    entry.fresh_until = Math.floor(fresh_until);
    entry.stale_until = stale_ms === Infinity ? 0 : Math.floor(fresh_until + Math.max(0, stale_ms));
  }

  /** Evicts until an entry of `charge` bytes fits, or none. False in a hook, if that took an eviction. */
  #makeRoom(charge: number, entries: 0 | 1): boolean {
    // Read anew each time: an eviction may make the table of fingerprints larger.
    const isOver = (): boolean =>
      this.bytes + charge > this.bytes_max || this.#entries.size + entries > this.entries_max;
    if (this.#isInHook) return !isOver();
    while (this.#entries.size > 0 && isOver()) this.#evict();
    // An entry that takes nearly all bytes leaves none for the fingerprints.
    if (isOver()) this.#ghosts.clear();
    return true;
  }

  /** Evicts one entry. Those that were used since their last turn get another one, within `MOVES_MAX`. */
  #evict(): void {
    for (let moves = 0; ; moves++) {
      const isSmall = this.#isSmallFull();
      const queue = isSmall ? this.#small : this.#main;
      const entry = queue.oldest!;
      if (entry.uses === 0 || moves === MOVES_MAX) {
        if (isSmall) this.#ghosts.add(entry.key, this.#weightOf(entry.bytes));
        this.#remove(entry);
        this.evictions_total += 1;
        if (this.#onEvict !== undefined) this.#gone.push({ entry, why: 'room' });
        return;
      }
      queue.remove(entry);
      entry.uses = isSmall ? 0 : entry.uses - 1;
      this.#main.push(entry);
    }
  }

  #isSmallFull(): boolean {
    if (this.#main.count === 0) return true;
    const { bytes, count } = this.#small;
    return count > 0 && (bytes > this.bytes_max * SMALL_SHARE || count > this.entries_max * SMALL_SHARE);
  }

  #isFresh(entry: Entry<V>): boolean {
    if (entry.fresh_until === 0) return true;
    const state = stateOf(entry, this.#now_ms());
    if (state === 'expired') {
      this.#expire(entry);
      this.#callHook();
    }
    return state === 'fresh';
  }

  #expire(entry: Entry<V>): void {
    if (this.#isInHook) return;
    this.#remove(entry);
    this.expirations_total += 1;
    if (this.#onEvict !== undefined) this.#gone.push({ entry, why: 'expired' });
  }

  #callHook(): void {
    if (this.#gone.length === 0) return;
    const gone = this.#gone;
    this.#gone = [];
    this.#isInHook = true;
    try {
      for (const { entry, why } of gone) this.#onEvict?.(entry.key, entry.value, why);
    } finally {
      this.#isInHook = false;
    }
  }

  #remove(entry: Entry<V>): void {
    this.#entries.delete(entry.key);
    entry.queue!.remove(entry);
  }

  #chargeOf(key: string, bytes: number): number {
    // One charge that is not a number would make all sums so, and remove the bound.
    assert(bytes >= 0 && bytes < Infinity, 'cache: bytes is finite and not negative');
    const char_bytes = TWO_BYTE.test(key) ? 2 : 1;
    return bytes + key.length * char_bytes + ENTRY_OVERHEAD_BYTES;
  }

  /** Ghosts are remembered for as much weight as the cache holds. */
  #weightOf(charge: number): number {
    return this.bytes_max < Infinity ? charge : 1;
  }

  #now_ms(): number {
    return sched.now_ms() - this.#origin_ms;
  }
}

function stateOf<V>(entry: Entry<V>, now_ms: number): Found<V>['state'] {
  if (entry.fresh_until === 0 || now_ms < entry.fresh_until) return 'fresh';
  return entry.stale_until === 0 || now_ms < entry.stale_until ? 'stale' : 'expired';
}
