/**
 * The last deliveries, accepted and refused, for `GET /admin/deliveries`.
 *
 * Contract: entries have ascending numbers, over both kinds, also across restarts: the first number is taken from the clock, so a
 * reader that passes a number of an earlier process gets all entries of this one. A flood of refusals does not remove accepted
 * ones: each kind has a ring of its own. `page` reports how many entries between the given number and its last one are gone.
 * Bound: `INTEROP_LIMITS.deliveries` of each kind, without bodies.
 */
import { sched } from '@ron/kernel';
import { INTEROP_LIMITS, type DeliveriesPage, type DeliveryDto } from '@ron/proto';

type Entry = DeliveryDto;

class Ring {
  readonly #items: (Entry | undefined)[];
  #count = 0;

  constructor(capacity: number) {
    this.#items = Array.from({ length: capacity });
  }

  push(entry: Entry): void {
    this.#items[this.#count % this.#items.length] = entry;
    this.#count += 1;
  }

  /** Entries after `seq`, the oldest first. */
  *after(seq: number): Generator<Entry, void, void> {
    const capacity = this.#items.length;
    for (let at = Math.max(0, this.#count - capacity); at < this.#count; at++) {
      const entry = this.#items[at % capacity]!;
      if (entry.seq > seq) yield entry;
    }
  }
}

/** No process records more; so numbers of a process stay below those of a later one. */
const ENTRIES_PER_MS = 1000;

export class RecentDeliveries {
  readonly #accepted = new Ring(INTEROP_LIMITS.deliveries);
  readonly #refused = new Ring(INTEROP_LIMITS.deliveries);
  readonly #before_first: number;
  #seq: number;

  constructor() {
    this.#before_first = Math.floor(sched.wall_ms()) * ENTRIES_PER_MS;
    this.#seq = this.#before_first;
  }

  /** Returns the entry with its number. */
  add(entry: Omit<Entry, 'seq'>): Entry {
    this.#seq += 1;
    const numbered: Entry = { seq: this.#seq, ...entry };
    (entry.outcome === 'refused' ? this.#refused : this.#accepted).push(numbered);
    return numbered;
  }

  page(after: number, limit: number): DeliveriesPage {
    // A number that this process has not given out is from before a restart; the clock may have been set back since.
    const from = after > this.#seq ? this.#before_first : Math.max(after, this.#before_first);
    const all = [...this.#accepted.after(from), ...this.#refused.after(from)].toSorted((a, b) => a.seq - b.seq);
    const deliveries = all.slice(0, limit);
    const next = deliveries.at(-1)?.seq ?? this.#seq;
    return { deliveries, next, lost: next - from - deliveries.length };
  }
}
