/** Eviction policies in their plainest form, for entries of one size, to compare with the policy of the cache. */

export interface Policy {
  /** Whether the key was cached; it is cached afterwards if the policy admits it. */
  request(key: number): boolean;
}

export class Lru implements Policy {
  readonly #keys = new Set<number>();
  readonly #capacity: number;
  constructor(capacity: number) {
    this.#capacity = capacity;
  }
  request(key: number): boolean {
    const isHit = this.#keys.delete(key);
    this.#keys.add(key);
    if (this.#keys.size > this.#capacity) this.#keys.delete(this.#keys.keys().next().value!);
    return isHit;
  }
}

/** Segmented LRU: probation and protection with a used bit. */
export class Segmented implements Policy {
  readonly #probation = new Set<number>();
  readonly #protected = new Map<number, boolean>();
  readonly #capacity: number;
  constructor(capacity: number) {
    this.#capacity = capacity;
  }
  request(key: number): boolean {
    if (this.#protected.has(key)) {
      this.#protected.set(key, true);
      return true;
    }
    if (this.#probation.delete(key)) {
      this.#protected.set(key, false);
      while (this.#protected.size > this.#capacity * 0.8) {
        const [oldest, isUsed] = this.#protected.entries().next().value!;
        this.#protected.delete(oldest);
        if (isUsed) this.#protected.set(oldest, false);
        else this.#probation.add(oldest);
      }
      return true;
    }
    this.#probation.add(key);
    if (this.#probation.size + this.#protected.size > this.#capacity) {
      this.#probation.delete(this.#probation.keys().next().value!);
    }
    return false;
  }
}

export class Sieve implements Policy {
  readonly #visited = new Map<number, boolean>();
  readonly #capacity: number;
  #hand: IterableIterator<number> | undefined;
  constructor(capacity: number) {
    this.#capacity = capacity;
  }
  request(key: number): boolean {
    if (this.#visited.has(key)) {
      this.#visited.set(key, true);
      return true;
    }
    if (this.#visited.size >= this.#capacity) this.#evict();
    this.#visited.set(key, false);
    return false;
  }
  #evict(): void {
    for (;;) {
      this.#hand ??= this.#visited.keys();
      const { value, done } = this.#hand.next();
      if (done === true) this.#hand = undefined;
      else if (this.#visited.get(value) === true) this.#visited.set(value, false);
      else return void this.#visited.delete(value);
    }
  }
}

/** `promote_at`: requests after the first that take an entry from the small queue to the main one. */
export class S3Fifo implements Policy {
  readonly #small = new Map<number, number>();
  readonly #main = new Map<number, number>();
  readonly #ghost = new Set<number>();
  readonly #capacity: number;
  readonly #promote_at: number;
  constructor(capacity: number, promote_at: number) {
    this.#capacity = capacity;
    this.#promote_at = promote_at;
  }
  request(key: number): boolean {
    for (const queue of [this.#small, this.#main]) {
      const uses = queue.get(key);
      if (uses === undefined) continue;
      queue.set(key, Math.min(3, uses + 1));
      return true;
    }
    while (this.#small.size + this.#main.size >= this.#capacity) {
      if (this.#small.size > this.#capacity * 0.1 || this.#main.size === 0) this.#evictSmall();
      else this.#evictMain();
    }
    (this.#ghost.delete(key) ? this.#main : this.#small).set(key, 0);
    return false;
  }
  #evictSmall(): void {
    const [key, uses] = this.#small.entries().next().value!;
    this.#small.delete(key);
    if (uses >= this.#promote_at) return void this.#main.set(key, 0);
    this.#ghost.add(key);
    if (this.#ghost.size > this.#capacity * 0.9) this.#ghost.delete(this.#ghost.keys().next().value!);
  }
  #evictMain(): void {
    for (;;) {
      const [key, uses] = this.#main.entries().next().value!;
      this.#main.delete(key);
      if (uses === 0) return;
      this.#main.set(key, uses - 1);
    }
  }
}

/** Window of 1 %, a segmented main part, admission by a count-min sketch that halves. */
export class TinyLfu implements Policy {
  readonly #window = new Set<number>();
  readonly #probation = new Set<number>();
  readonly #protected = new Set<number>();
  readonly #capacity: number;
  readonly #rows: Uint8Array[];
  readonly #mask: number;
  #additions = 0;
  constructor(capacity: number) {
    this.#capacity = capacity;
    this.#mask = 2 ** Math.ceil(Math.log2(capacity * 2)) - 1;
    this.#rows = Array.from({ length: 4 }, () => new Uint8Array(this.#mask + 1));
  }
  request(key: number): boolean {
    this.#count(key);
    if (this.#window.delete(key)) {
      this.#window.add(key);
      return true;
    }
    if (this.#protected.delete(key)) {
      this.#protected.add(key);
      return true;
    }
    if (this.#probation.delete(key)) {
      this.#protected.add(key);
      if (this.#protected.size > this.#capacity * 0.79) move(this.#protected, this.#probation);
      return true;
    }
    this.#window.add(key);
    if (this.#window.size > Math.max(1, this.#capacity * 0.01)) this.#admit();
    return false;
  }
  #admit(): void {
    const candidate = this.#window.keys().next().value!;
    this.#window.delete(candidate);
    if (this.#probation.size + this.#protected.size < this.#capacity * 0.99) {
      this.#probation.add(candidate);
      return;
    }
    const victim = this.#probation.keys().next().value!;
    if (this.#uses(candidate) <= this.#uses(victim)) return;
    this.#probation.delete(victim);
    this.#probation.add(candidate);
  }
  #count(key: number): void {
    for (const [row, counts] of this.#rows.entries()) {
      const at = this.#at(key, row);
      if (counts[at]! < 15) counts[at] = counts[at]! + 1;
    }
    this.#additions += 1;
    if (this.#additions < this.#capacity * 10) return;
    this.#additions = 0;
    for (const counts of this.#rows) for (let at = 0; at < counts.length; at++) counts[at] = counts[at]! >> 1;
  }
  #uses(key: number): number {
    return Math.min(...this.#rows.map((counts, row) => counts[this.#at(key, row)]!));
  }
  #at(key: number, row: number): number {
    const mixed = Math.imul(key ^ Math.imul(row + 1, 0x9e3779b1), 0x85ebca6b);
    return (mixed ^ (mixed >>> 15)) & this.#mask;
  }
}

function move(from: Set<number>, to: Set<number>): void {
  const oldest = from.keys().next().value!;
  from.delete(oldest);
  to.add(oldest);
}
