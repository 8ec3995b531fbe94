/** Directed cases of the tables of slots: the edges of pages, buckets and blocks that random steps rarely reach. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { NONE, type Slot } from '../states.ts';
import { SlotHash } from './slot-hash.ts';
import { SlotHeap } from './slot-heap.ts';
import { SlotOrder } from './slot-order.ts';

const BLOCK = 512;
const PAGE = 1024;
const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, index) => from + index);

suite('hash', () => {
  /** A table whose hashes the test chooses. */
  function tableOf(hashOf: (slot: Slot) => number, load: number) {
    const next_of = new Map<Slot, Slot>();
    const rows = {
      hashOf,
      nextOf: (slot: Slot) => next_of.get(slot)!,
      setNext: (slot: Slot, next: Slot) => void next_of.set(slot, next),
    };
    const table = new SlotHash(rows, load);
    /** The slots with the hash of this slot, in the order of their chain. */
    const sameHash = (slot: Slot): Slot[] => {
      const found: Slot[] = [];
      for (let at = table.first(hashOf(slot)); at !== NONE; at = rows.nextOf(at))
        if (hashOf(at) === hashOf(slot)) found.push(at);
      return found;
    };
    /** The length of the chain in which this slot is searched. */
    const chain = (slot: Slot): number => {
      let length = 0;
      for (let at = table.first(hashOf(slot)); at !== NONE; at = rows.nextOf(at)) length += 1;
      return length;
    };
    return { table, sameHash, chain };
  }

  test('slots that all have one hash stay in one chain through every split and join', () => {
    const { table, sameHash } = tableOf(() => 0xffff_ffff, 1);
    const slots = range(0, 3000);
    for (const slot of slots) table.add(slot);
    assert.deepEqual(new Set(sameHash(0)), new Set(slots));
    assert.equal(sameHash(0).length, slots.length, 'none is there twice');
    // From the middle of the chain, its begin and its end.
    for (const slot of [...slots.slice(1000, 2000), 0, 2999]) table.remove(slot);
    assert.equal(sameHash(0).length, 1998);
    for (const slot of sameHash(0)) table.remove(slot);
    assert.deepEqual([table.size, sameHash(0)], [0, []]);
  });

  test('slots whose hashes differ in one bit are found at every size', () => {
    for (let bit = 0; bit < 32; bit++) {
      const { table, sameHash } = tableOf((slot) => (slot % 2 === 0 ? 0 : (1 << bit) >>> 0), 4);
      for (const slot of range(0, 200)) {
        table.add(slot);
        assert.ok(sameHash(slot).includes(slot), `bit ${bit}`);
      }
      assert.equal(sameHash(0).length, 100);
      assert.equal(sameHash(1).length, 100);
    }
  });

  test('a table at each size around a power of two and a page finds all slots, growing and shrinking', () => {
    const { table, sameHash, chain } = tableOf((slot) => slot, 1);
    const sizes = new Set([15, 16, 17, 31, 32, 33, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1]);
    const slots = range(0, 2 * PAGE + 2);
    const check = (size: number): void => {
      if (!sizes.has(size)) return;
      for (const slot of slots) {
        assert.deepEqual(sameHash(slot), slot < size ? [slot] : [], `${slot} of ${size}`);
        assert.ok(chain(slot) <= 4, `${chain(slot)} slots in a chain of ${size}`);
      }
    };
    // Twice: a table that has shrunk grows again.
    for (let round = 0; round < 2; round++) {
      for (const slot of slots) {
        table.add(slot);
        check(slot + 1);
      }
      const grown = table.bytes;
      for (const slot of slots.toReversed()) {
        table.remove(slot);
        check(slot);
      }
      assert.ok(table.bytes < grown, 'pages are given back');
      // A removal joins one bucket.
      for (let left = slots.length; left > 0; left--) {
        table.add(0);
        table.remove(0);
      }
    }
  });

  test('a slot takes the place of another one with its hash', () => {
    const { table, sameHash } = tableOf(() => 7, 2);
    for (const slot of [1, 2, 3]) table.add(slot);
    table.replace(2, 9);
    assert.deepEqual(new Set(sameHash(1)), new Set([1, 3, 9]));
    assert.equal(table.size, 3);
  });
});

suite('heap', () => {
  function heapOf() {
    const due = new Map<Slot, number>();
    const index = new Map<Slot, number>();
    const heap = new SlotHeap({
      isBefore: (a, b) => due.get(a)! < due.get(b)!,
      heapIndexOf: (slot) => index.get(slot) ?? NONE,
      setHeapIndex: (slot, at) => void index.set(slot, at),
    });
    const add = (slot: Slot, at: number): void => {
      due.set(slot, at);
      heap.add(slot);
    };
    const drain = (): number[] => {
      const found: number[] = [];
      for (let slot = heap.first(); slot !== NONE; slot = heap.first()) {
        found.push(due.get(slot)!);
        heap.remove(slot);
        assert.ok(!heap.has(slot));
      }
      return found;
    };
    return { heap, due, add, drain };
  }

  test('ascending, descending and equal times come out in order, across pages', () => {
    const count = 2 * PAGE + 3;
    for (const timeOf of [(slot: number) => slot, (slot: number) => -slot, () => 5, (slot: number) => slot % 7]) {
      const { add, drain } = heapOf();
      for (const slot of range(0, count)) add(slot, timeOf(slot));
      assert.deepEqual(
        drain(),
        range(0, count)
          .map(timeOf)
          .toSorted((a, b) => a - b),
      );
    }
  });

  test('a removal whose replacement belongs above it moves the replacement up', () => {
    const { heap, add, drain } = heapOf();
    // The first child of the root has late children, the second early ones; the last slot is an early one.
    const times = [0, 100, 1, 2, 3, 101, 102, 103, 104, 10, 11, 12];
    for (const [slot, time] of times.entries()) add(slot, time);
    heap.remove(6);
    assert.deepEqual(
      drain(),
      times.filter((_, slot) => slot !== 6).toSorted((a, b) => a - b),
    );
  });

  test('a changed slot moves up to the first place and down to the last', () => {
    const { heap, due, add, drain } = heapOf();
    for (const slot of range(0, 50)) add(slot, slot);
    due.set(49, -1);
    heap.changed(49);
    assert.equal(heap.first(), 49);
    due.set(49, 1000);
    heap.changed(49);
    assert.equal(heap.first(), 0);
    assert.deepEqual(drain(), [...range(0, 49), 1000]);
  });

  test('an emptied heap keeps at most two pages', () => {
    const { heap, add, drain } = heapOf();
    for (const slot of range(0, 8 * PAGE)) add(slot, slot);
    drain();
    assert.ok(heap.bytes <= 2 * PAGE * 4, `${heap.bytes} bytes`);
    assert.equal(heap.first(), NONE);
  });
});

suite('order', () => {
  /** The number of a slot is its sequence number. */
  function orderOf(slots: readonly Slot[], shown: readonly Slot[] = []) {
    const visible = new Set<Slot>();
    const order = new SlotOrder({ seqOf: (slot) => slot, isVisible: (slot) => visible.has(slot) });
    const show = (slot: Slot): void => {
      visible.add(slot);
      order.show(slot);
    };
    const hide = (slot: Slot): void => {
      visible.delete(slot);
      order.hide(slot);
    };
    for (const slot of slots) order.add(slot);
    for (const slot of shown) show(slot);
    return { order, show, hide };
  }

  test('a slot is inserted at the begin, in the middle and at the end of a full block', () => {
    for (const inserted of [-1, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK + 1]) {
      const evens = range(0, BLOCK + 1).map((n) => 2 * n);
      const { order } = orderOf(evens, evens);
      order.add(inserted);
      const all = [...evens, inserted].toSorted((a, b) => a - b);
      assert.deepEqual(order.after(-2, 1e6), all, `${inserted}`);
      assert.deepEqual(order.visible(1e6), evens, 'a new slot is hidden');
    }
  });

  test('one visible slot is found wherever it is among hidden ones, and after it moved', () => {
    const slots = range(0, 4 * BLOCK);
    const { order, show, hide } = orderOf(slots);
    for (const slot of [4 * BLOCK - 1, 0, BLOCK - 1, BLOCK, 2 * BLOCK + 7, BLOCK + 1]) {
      show(slot);
      assert.deepEqual(order.visible(2), [slot]);
      hide(slot);
      assert.deepEqual(order.visible(2), []);
    }
  });

  test('a slot that is shown again before the first visible one comes first', () => {
    const slots = range(0, 3 * BLOCK);
    const { order, show, hide } = orderOf(slots, slots);
    // As a receiver takes them: from the front.
    for (let taken = 0; taken < 2 * BLOCK + 10; taken++) hide(order.visible(1)[0]!);
    assert.deepEqual(order.visible(1), [2 * BLOCK + 10]);
    for (const back of [2 * BLOCK + 3, BLOCK + 5, 3]) {
      show(back);
      assert.deepEqual(order.visible(1), [back]);
    }
  });

  test('removals before the first visible slot, and the compaction of its block, do not hide it', () => {
    const slots = range(0, BLOCK);
    const { order, hide } = orderOf(slots, slots);
    for (const slot of range(0, 300)) hide(slot);
    assert.deepEqual(order.visible(1), [300]);
    order.remove(150);
    assert.deepEqual(order.visible(1), [300]);
    for (const slot of range(0, 300)) if (slot !== 150) order.remove(slot);
    assert.deepEqual(order.visible(1), [300]);
    // The block is full to its end: the next slot moves the others to its begin.
    for (const slot of range(BLOCK, BLOCK + 250)) order.add(slot);
    assert.deepEqual(order.visible(1e6), range(300, BLOCK));
    assert.ok(order.bytes <= BLOCK * 4, 'no block is added');
  });

  test('a FIFO of any length uses a bounded number of blocks', () => {
    const { order } = orderOf([]);
    for (let seq = 0; seq < 20 * BLOCK; seq++) {
      order.add(seq);
      if (order.size > 10) order.remove(order.first());
      assert.ok(order.bytes <= 2 * BLOCK * 4, `${order.bytes} bytes for ${order.size} slots`);
    }
    assert.deepEqual(order.after(-1, 100), range(20 * BLOCK - 10, 20 * BLOCK));
  });

  test('blocks that removals thin out are joined, and visible slots stay in order', () => {
    const slots = range(0, 8 * BLOCK);
    const kept = slots.filter((slot) => slot % 16 === 5);
    const { order, hide } = orderOf(slots, slots);
    for (const slot of slots) {
      if (kept.includes(slot)) continue;
      hide(slot);
      order.remove(slot);
    }
    assert.deepEqual(order.visible(1e6), kept);
    assert.deepEqual(order.after(-1, 1e6), kept);
    assert.ok(order.bytes <= 2 * BLOCK * 4, `${order.bytes} bytes for ${kept.length} slots`);
  });

  test('`after` begins behind its number, whether or not a slot has it, and stops at its limit', () => {
    const evens = range(0, 2 * BLOCK).map((n) => 2 * n);
    const { order } = orderOf(evens);
    for (const seq of [-1, 0, 1, 2 * BLOCK - 2, 2 * BLOCK - 1, 2 * BLOCK, 4 * BLOCK - 3])
      assert.deepEqual(order.after(seq, 3), evens.filter((slot) => slot > seq).slice(0, 3), `after ${seq}`);
    assert.deepEqual(order.after(4 * BLOCK - 2, 3), []);
    assert.deepEqual(order.after(0, 0), []);
    assert.deepEqual(orderOf([]).order.after(0, 3), []);
  });
});
