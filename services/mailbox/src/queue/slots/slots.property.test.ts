import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { NONE, type Slot } from '../states.ts';
import { mix32, SlotHash } from './slot-hash.ts';
import { SlotHeap } from './slot-heap.ts';
import { SlotOrder } from './slot-order.ts';
import { SlotPages } from './slot-pages.ts';

/** Runs of one kind of step make tables large and empty again. */
const runs = fc.array(fc.tuple(fc.boolean(), fc.integer({ min: 1, max: 900 }), fc.nat()), {
  minLength: 2,
  maxLength: 12,
});

/** A small generator, so that one number of fast-check makes a whole run. */
function numbers(seed: number): (below: number) => number {
  let at = seed;
  return (below) => mix32((at = (at + 0x9e3779b9) | 0)) % below;
}

/** A `SlotOrder` beside a set of slots; the number of a slot is also its sequence number. */
class OrderPair {
  readonly #all = new Set<Slot>();
  readonly #shown = new Set<Slot>();
  readonly #order = new SlotOrder({ seqOf: (slot) => slot, isVisible: (slot) => this.#shown.has(slot) });
  #last = 3000;

  step(kind: number, next: (below: number) => number): void {
    const any = (): Slot | undefined => [...this.#all][next(this.#all.size)];
    if (kind === 0) this.#add((this.#last += 1 + next(3)), next(3) > 0);
    else if (kind === 1) this.#add(next(3000), next(3) > 0);
    else if (kind === 2) this.#remove(this.#order.first());
    else if (kind === 3) this.#remove(any());
    else if (kind === 4) this.#toggle(any());
    else for (const slot of this.#order.visible(3)) this.#toggle(slot);
  }

  #add(slot: Slot, isShown: boolean): void {
    if (this.#all.has(slot)) return;
    this.#all.add(slot);
    this.#order.add(slot);
    if (isShown) this.#toggle(slot);
  }

  #remove(slot: Slot | undefined): void {
    if (slot === undefined || slot === NONE) return;
    if (this.#shown.has(slot)) this.#toggle(slot);
    this.#order.remove(slot);
    this.#all.delete(slot);
  }

  #toggle(slot: Slot | undefined): void {
    if (slot === undefined) return;
    if (this.#shown.delete(slot)) return this.#order.hide(slot);
    this.#shown.add(slot);
    this.#order.show(slot);
  }

  compare(): void {
    const order = this.#order;
    const sorted = [...this.#all].toSorted((a, b) => a - b);
    const visible = sorted.filter((slot) => this.#shown.has(slot));
    assert.deepEqual(order.visible(5), visible.slice(0, 5));
    assert.deepEqual(order.visible(1e6), visible);
    assert.deepEqual([order.visible_size, order.size], [visible.length, sorted.length]);
    assert.deepEqual(order.after(-1, 1e6), sorted);
    const middle = sorted[sorted.length >>> 1] ?? 0;
    assert.deepEqual(order.after(middle, 300), sorted.filter((slot) => slot > middle).slice(0, 300));
    assert.equal(order.first(), sorted[0] ?? NONE);
    // Blocks are joined: two neighbours are together more than 3/8 full, beside the last ones.
    assert.ok(order.bytes <= (8 / 3) * 4 * sorted.length + 4 * 2048, `${order.bytes} bytes for ${sorted.length} slots`);
  }
}

test('an order gives all slots by sequence number and the visible ones among them after any adds and removals', () => {
  const kinds = fc.array(fc.tuple(fc.nat(5), fc.integer({ min: 1, max: 1200 }), fc.nat()), {
    maxLength: 14,
    size: 'max',
  });
  fc.assert(
    fc.property(kinds, (steps) => {
      const pair = new OrderPair();
      for (const [kind, count, seed] of steps) {
        const next = numbers(seed);
        for (let step = 0; step < (kind > 2 ? count / 4 : count); step += 1) pair.step(kind, next);
        pair.compare();
      }
    }),
    { numRuns: 60 },
  );
});

test('a heap gives the least slot first after any adds, removals and changes', () => {
  fc.assert(
    fc.property(runs, (steps) => {
      const due = new Map<Slot, number>();
      const index = new Map<Slot, number>();
      const heap = new SlotHeap({
        isBefore: (a, b) => due.get(a)! < due.get(b)! || (due.get(a) === due.get(b) && a < b),
        heapIndexOf: (slot) => index.get(slot) ?? NONE,
        setHeapIndex: (slot, at) => void index.set(slot, at),
      });
      for (const [isAdd, count, seed] of steps) {
        const next = numbers(seed);
        for (let step = 0; step < count; step += 1) {
          const slot = next(3000);
          if (!heap.has(slot)) {
            if (isAdd) {
              due.set(slot, next(100));
              heap.add(slot);
            }
          } else if (next(3) === 0) {
            due.set(slot, next(100));
            heap.changed(slot);
          } else if (!isAdd) {
            heap.remove(slot);
            due.delete(slot);
          }
        }
        const least = [...due].toSorted(([a, x], [b, y]) => x - y || a - b).slice(0, 40);
        assert.equal(heap.size, due.size);
        for (const [slot] of least) {
          assert.equal(heap.first(), slot);
          heap.remove(slot);
        }
        for (const [slot] of least) heap.add(slot);
      }
      for (const slot of due.keys()) heap.remove(slot);
      assert.equal(heap.first(), NONE);
    }),
    { numRuns: 60 },
  );
});

test('a hash finds each slot, and its buckets grow and shrink with it', () => {
  fc.assert(
    fc.property(runs, fc.constantFrom(1, 2, 4), (steps, load) => {
      const next_of = new Map<Slot, Slot>();
      const rows = {
        // Hashes with few high bits collide often.
        hashOf: (slot: Slot) => mix32(slot % 1500),
        nextOf: (slot: Slot) => next_of.get(slot)!,
        setNext: (slot: Slot, next: Slot) => void next_of.set(slot, next),
      };
      const hash = new SlotHash(rows, load);
      const all = new Set<Slot>();
      const has = (slot: Slot): boolean => {
        let at = hash.first(rows.hashOf(slot));
        while (at !== NONE && at !== slot) at = rows.nextOf(at);
        return at === slot;
      };
      for (const [isAdd, count, seed] of steps) {
        const next = numbers(seed);
        for (let step = 0; step < count; step += 1) {
          const slot = isAdd ? next(3000) : all.values().next().value;
          if (isAdd && !all.has(slot!)) {
            all.add(slot!);
            hash.add(slot!);
          } else if (!isAdd && slot !== undefined && all.delete(slot)) hash.remove(slot);
        }
        for (let slot = 0; slot < 3000; slot += 1) assert.equal(has(slot), all.has(slot));
      }
      assert.equal(hash.size, all.size);
    }),
    { numRuns: 40 },
  );
});

test('a page that is empty is given back, and low slots are used first', () => {
  let made = 0;
  const pages = new SlotPages((slots) => (made++, { next: new Int32Array(slots) }), 4);
  const slots = Array.from({ length: 1000 }, () => pages.take());
  assert.deepEqual(
    slots,
    Array.from({ length: 1000 }, (_, index) => index),
  );
  assert.equal(pages.pages, 63);
  for (const slot of slots.slice(10)) pages.give(slot);
  assert.equal(pages.live, 10);
  assert.ok(pages.pages <= 2, 'one page in use, one spare');
  assert.deepEqual(new Set(Array.from({ length: 6 }, () => pages.take())), new Set([10, 11, 12, 13, 14, 15]));
  const before = made;
  for (let round = 0; round < 100; round += 1) pages.give(pages.take());
  assert.ok(made <= before + 1, 'a page at the edge is not made anew each time');
});
