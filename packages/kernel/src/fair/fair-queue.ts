/**
 * A queue that is fair by key (tenant, provider, client address): keys take turns, regardless of their queue lengths.
 *
 * Contract: deficit round robin. Each turn grants a key `quantum` of cost, and an unused part is kept for a dearer entry;
 * so over time keys with entries get equal shares of the served cost. A key that gets its first entry has its turn after
 * one turn of each other key. The entries of a key stay in the order of arrival, and either end of it can be served.
 * Bound: `capacity` entries and `keys_max` buckets. A key has a bucket of its own while one of its `PROBES` candidate
 * buckets is free; otherwise it shares one, and the keys of a bucket share one turn. The candidates follow from a hash
 * with a random seed, so a client cannot choose a key that shares the bucket of another. All operations are O(1) or
 * O(keys_max), regardless of cost.
 * Overflow: the owner calls `admits` before it pushes. It leaves as many places free as one key holds: a key alone gets half
 * of the queue, the next key a quarter. Several keys can fill the queue so; `displaceable` then names the entry of the
 * longest key to drop, so that a key with fewer entries always finds room.
 * Cancellation: `remove` takes out any entry in one step.
 *
 *   turn -> [acme: e e e] -> [zoo: e] -> back to acme
 *
 *   const queue = new FairQueue<Job>({ capacity: 512, keys_max: 64, quantum: 400 });
 *   if (!queue.admits(tenant, 1)) throw busy();
 *   queue.push(tenant, job);                          // class Job extends FairEntry
 *   for (let job = queue.next(); job !== undefined; job = queue.next()) serve(job);
 */
import { assert } from '../errors.ts';
import { sched } from '../sched.ts';

/** Buckets that are tried for a key before it shares one. */
const PROBES = 8;

/** The base of everything that is queued; it is in at most one queue at a time. */
export class FairEntry {
  readonly cost: number;
  /** Set while it is queued. */
  bucket: KeyBucket | undefined = undefined;
  older: FairEntry | undefined = undefined;
  newer: FairEntry | undefined = undefined;
  /** Order of arrival over all keys. */
  arrival = 0;

  constructor(cost: number) {
    assert(cost >= 0 && Number.isFinite(cost), 'fair queue: the cost is a finite number, at least 0');
    this.cost = cost;
  }
}

/** The entries of one key, or of several keys that share a bucket. In the ring of turns while it has entries. */
class KeyBucket {
  key = '';
  oldest: FairEntry | undefined = undefined;
  newest: FairEntry | undefined = undefined;
  size = 0;
  cost = 0;
  /** Granted by turns and not yet used. */
  credit = 0;
  before: KeyBucket = this;
  after: KeyBucket = this;
}

export interface FairQueueInit {
  capacity: number;
  /** Buckets. With 1 all entries are in one bucket: a plain queue. */
  keys_max: number;
  /** Cost that a key may use up in one turn. Default 1. */
  quantum?: number;
}

export class FairQueue<T extends FairEntry> {
  readonly capacity: number;
  readonly #quantum: number;
  readonly #buckets: KeyBucket[];
  /** The bucket whose turn it is; the ring goes on from it. */
  #turn: KeyBucket | undefined;
  #seed: number | undefined;
  #size = 0;
  #cost = 0;
  #arrivals = 0;

  constructor(init: FairQueueInit) {
    const { capacity, keys_max, quantum = 1 } = init;
    assert(Number.isSafeInteger(capacity) && capacity >= 1, 'fair queue: capacity is a whole number, at least 1');
    assert(Number.isSafeInteger(keys_max) && keys_max >= 1, 'fair queue: keys_max is a whole number, at least 1');
    assert(quantum > 0, 'fair queue: the quantum is positive');
    this.capacity = capacity;
    this.#quantum = quantum;
    this.#buckets = Array.from({ length: keys_max }, () => new KeyBucket());
  }

  get size(): number {
    return this.#size;
  }

  /** The cost of all entries. */
  get cost(): number {
    return this.#cost;
  }

  /** Entries in the bucket of a key. */
  sizeOf(key: string): number {
    return this.#bucketOf(key).size;
  }

  /** The cost that is served until a key's last entry is, if it adds `cost` now: its own, and as much of each other key. */
  costBefore(key: string, cost: number): number {
    const own = this.#bucketOf(key);
    const own_cost = own.size === 0 ? cost : own.cost + cost;
    let sum = own_cost;
    this.#eachBucket((bucket) => {
      if (bucket !== own) sum += Math.min(bucket.cost, own_cost);
    });
    return sum;
  }

  /** Most entries that a key may add in one step to an empty queue, with room to spare. */
  get together_max(): number {
    return Math.max(1, this.capacity >> 2);
  }

  /** Whether a key may add so many entries and then holds no more places than are still free. */
  admits(key: string, count: number): boolean {
    const free = this.capacity - this.#size;
    return this.sizeOf(key) + 2 * count <= free + 1;
  }

  /**
   * The newest entry of the longest key, if longer keys can give up `places` places and none of them gets shorter than
   * `key` is with `count` more entries.
   */
  displaceable(key: string, count = 1, places = count): T | undefined {
    const own = this.#bucketOf(key);
    let longest = own;
    let spare = 0;
    this.#eachBucket((bucket) => {
      if (bucket.size > longest.size) longest = bucket;
      spare += Math.max(0, bucket.size - own.size - count);
    });
    return spare >= places ? (longest.newest as T) : undefined;
  }

  /** The entry that arrived first, over all keys. */
  get oldest(): T | undefined {
    let oldest: FairEntry | undefined;
    this.#eachBucket((bucket) => {
      if (oldest === undefined || bucket.oldest!.arrival < oldest.arrival) oldest = bucket.oldest;
    });
    return oldest as T | undefined;
  }

  push(key: string, entry: T): void {
    assert(entry.bucket === undefined, 'fair queue: an entry is in one queue at a time');
    assert(this.#size < this.capacity, 'fair queue: the owner checks for room before it pushes');
    const bucket = this.#bucketOf(key);
    if (bucket.size === 0) this.#join(bucket, key);
    entry.bucket = bucket;
    entry.arrival = this.#arrivals++;
    entry.older = bucket.newest;
    if (bucket.newest === undefined) bucket.oldest = entry;
    else bucket.newest.newer = entry;
    bucket.newest = entry;
    bucket.size += 1;
    bucket.cost += entry.cost;
    this.#size += 1;
    this.#cost += entry.cost;
  }

  /** The entry to serve next: the oldest or the newest of the key whose turn it is. It stays queued. */
  peek(end: 'oldest' | 'newest' = 'oldest'): T | undefined {
    const first = this.#turn;
    for (let bucket = first, turns = 0; bucket !== undefined; bucket = this.#turn, turns += 1) {
      const entry = bucket[end]!;
      if (bucket.credit >= entry.cost) return entry as T;
      if (turns > 0 && bucket === first) this.#grantRounds(end);
      this.#turnTo(bucket.after);
    }
    return undefined;
  }

  /** Takes out an entry that is served, and charges its key. */
  take(entry: T): void {
    assert(entry.bucket !== undefined, 'fair queue: the entry is queued');
    entry.bucket.credit -= entry.cost;
    this.remove(entry);
  }

  /** Takes out an entry that is not served. */
  remove(entry: T): void {
    const { bucket, older, newer } = entry;
    assert(bucket !== undefined, 'fair queue: the entry is queued');
    if (older === undefined) bucket.oldest = newer;
    else older.newer = newer;
    if (newer === undefined) bucket.newest = older;
    else newer.older = older;
    entry.bucket = undefined;
    entry.older = undefined;
    entry.newer = undefined;
    bucket.size -= 1;
    bucket.cost -= entry.cost;
    this.#size -= 1;
    this.#cost -= entry.cost;
    if (bucket.size === 0) this.#leave(bucket);
  }

  /** `peek` and `take` in one. */
  next(): T | undefined {
    const entry = this.peek();
    if (entry !== undefined) this.take(entry);
    return entry;
  }

  /** Every entry, key by key. A copy: entries may be removed while it is walked. */
  entries(): T[] {
    const entries: T[] = [];
    this.#eachBucket((bucket) => {
      for (let entry = bucket.oldest; entry !== undefined; entry = entry.newer) entries.push(entry as T);
    });
    return entries;
  }

  /** The bucket that a key has or would get. */
  #bucketOf(key: string): KeyBucket {
    const buckets = this.#buckets;
    if (buckets.length === 1) return buckets[0]!;
    const home = this.#hash(key) % buckets.length;
    const probes = Math.min(PROBES, buckets.length);
    let free: KeyBucket | undefined;
    for (let probe = 0; probe < probes; probe += 1) {
      const bucket = buckets[(home + probe) % buckets.length]!;
      if (bucket.size === 0) free ??= bucket;
      else if (bucket.key === key) return bucket;
    }
    return free ?? buckets[home]!;
  }

  /** FNV-1a with a random start. */
  #hash(key: string): number {
    this.#seed ??= new Uint32Array(sched.randomBytes(4).buffer)[0]!;
    let hash = this.#seed;
    for (let at = 0; at < key.length; at += 1) hash = Math.imul(hash ^ key.charCodeAt(at), 0x01000193);
    return (hash ^ (hash >>> 15)) >>> 0;
  }

  /** Last in the ring: right before the bucket whose turn it is. */
  #join(bucket: KeyBucket, key: string): void {
    bucket.key = key;
    const turn = this.#turn;
    if (turn === undefined) {
      bucket.before = bucket;
      bucket.after = bucket;
      this.#turnTo(bucket);
      return;
    }
    bucket.before = turn.before;
    bucket.after = turn;
    turn.before.after = bucket;
    turn.before = bucket;
  }

  /** Credit is for waiting entries only: a key that returns begins anew. */
  #leave(bucket: KeyBucket): void {
    bucket.credit = 0;
    bucket.cost = 0;
    if (bucket.after === bucket) {
      this.#turn = undefined;
      return;
    }
    bucket.before.after = bucket.after;
    bucket.after.before = bucket.before;
    if (this.#turn === bucket) this.#turnTo(bucket.after);
  }

  /** No key can be served: grants all rounds at once but the one in which the first of them can be. */
  #grantRounds(end: 'oldest' | 'newest'): void {
    let rounds = Infinity;
    this.#eachBucket((bucket) => {
      rounds = Math.min(rounds, Math.ceil((bucket[end]!.cost - bucket.credit) / this.#quantum));
    });
    this.#eachBucket((bucket) => {
      bucket.credit += (rounds - 1) * this.#quantum;
    });
  }

  #turnTo(bucket: KeyBucket): void {
    this.#turn = bucket;
    bucket.credit += this.#quantum;
  }

  #eachBucket(visit: (bucket: KeyBucket) => void): void {
    const first = this.#turn;
    if (first === undefined) return;
    let bucket = first;
    do {
      visit(bucket);
      bucket = bucket.after;
    } while (bucket !== first);
  }
}
