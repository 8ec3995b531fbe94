import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { NO_ROW, ReceiptIndex } from './receipt-index.ts';

const idOf = (number: number): Uint8Array => {
  const id = Buffer.alloc(16);
  id.writeUInt32BE(number, 3);
  // Few different last words: rows share buckets.
  id.writeUInt32BE(number % 7, 12);
  return id;
};
const KIB = 1024;

interface NaiveRow {
  readonly number: number;
  readonly segment: number;
  state: 'unsigned' | 'signed' | 'lost';
}

/** The simplest correct index. */
class Naive {
  rows: NaiveRow[] = [];

  get segments(): number[] {
    return [...new Set(this.rows.map(({ segment }) => segment))];
  }

  canDrop(keepsUnsigned: boolean): boolean {
    const [oldest, next] = this.segments;
    if (next === undefined) return false;
    return !keepsUnsigned || !this.rows.some(({ segment, state }) => segment === oldest && state === 'unsigned');
  }

  dropOldest(): number {
    const [oldest] = this.segments;
    const before = this.rows.length;
    this.rows = this.rows.filter(({ segment }) => segment !== oldest);
    return before - this.rows.length;
  }

  kept(): number {
    const first = this.rows.findIndex(({ state }) => state === 'unsigned');
    const segment = first < 0 ? this.segments.at(-1) : this.rows[first]!.segment;
    return this.rows.filter((row) => row.segment >= segment!).length;
  }
}

const steps = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: fc.record({ kind: fc.constant('add' as const), newSegment: fc.boolean() }) },
    { weight: 4, arbitrary: fc.record({ kind: fc.constant('sign' as const), at: fc.nat() }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('lose' as const), at: fc.nat() }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant('drop' as const), keeps: fc.boolean() }) },
  ),
  { maxLength: 300 },
);

test('the index agrees with a list of rows, for random adds, signatures, losses and drops', () => {
  fc.assert(
    fc.property(steps, (all) => {
      const [index, naive] = [new ReceiptIndex(8 * KIB), new Naive()];
      let [added, segment] = [0, 1];
      const rowOf = (number: number): number => index.find(idOf(number));
      for (const step of all) {
        if (step.kind === 'add') {
          if (step.newSegment) segment += 1;
          index.add(idOf(added), { segment, offset: added * 64 }, 1000 * added);
          naive.rows.push({ number: added, segment, state: 'unsigned' });
          added += 1;
        } else if (step.kind === 'drop') {
          assert.equal(index.canDrop(step.keeps), naive.canDrop(step.keeps));
          if (naive.canDrop(step.keeps)) assert.equal(index.dropOldest(), naive.dropOldest());
        } else {
          const row = naive.rows[step.at % Math.max(1, naive.rows.length)];
          if (row?.state !== 'unsigned') continue;
          row.state = step.kind === 'sign' ? 'signed' : 'lost';
          if (step.kind === 'lose') index.lose(rowOf(row.number));
          else index.sign(rowOf(row.number), { segment: 9, offset: 64 * row.number, leaf: row.number % 128 });
        }
      }
      assert.equal(index.rows, naive.rows.length);
      assert.equal(index.unsigned, naive.rows.filter(({ state }) => state === 'unsigned').length);
      assert.equal(index.kept(true), naive.kept());
      for (let number = 0; number < added; number += 1) {
        const known = naive.rows.find((row) => row.number === number);
        const row = rowOf(number);
        assert.equal(row === NO_ROW, known === undefined, `row ${number}`);
        if (known === undefined) continue;
        assert.deepEqual(index.placeOf(row), { segment: known.segment, offset: number * 64 });
        assert.equal(index.isUnsigned(row), known.state === 'unsigned');
        const batch = { segment: 9, offset: 64 * number, leaf: number % 128 };
        assert.deepEqual(index.batchOf(row), known.state === 'signed' ? batch : undefined);
        assert.equal(index.ageMs(row, 1_000_000), 1000 * (1000 - number));
      }
      const oldest = naive.rows.find(({ state }) => state === 'unsigned');
      assert.equal(index.first_unsigned, oldest === undefined ? index.end : rowOf(oldest.number));
    }),
    { numRuns: 200 },
  );
});

test('an id that differs in one bit is another one', () => {
  const index = new ReceiptIndex(8 * KIB);
  const id = idOf(5);
  index.add(id, { segment: 1, offset: 0 }, 0);
  for (let bit = 0; bit < 128; bit += 1) {
    const other = id.map((byte, at) => (at === bit >> 3 ? byte ^ (1 << (bit & 7)) : byte));
    assert.equal(index.find(other), NO_ROW, `bit ${bit}`);
  }
});

test('the age of a row is known for years, and is 0 after the clock was set back', () => {
  const index = new ReceiptIndex(8 * KIB);
  const DAY_MS = 86_400_000;
  const added_ms = Date.UTC(2026, 10, 19);
  const row = index.add(idOf(1), { segment: 1, offset: 0 }, added_ms);
  for (const days of [0, 24, 25, 49, 50, 90, 2400]) {
    assert.equal(index.ageMs(row, added_ms + days * DAY_MS), days * DAY_MS, `${days} days`);
  }
  assert.equal(index.ageMs(row, added_ms - DAY_MS), 0);
});

test('the rows, the pages and the hash fit into the bytes that the index was given', () => {
  for (const bytes of [64 * KIB, 21 * KIB * KIB]) {
    const index = new ReceiptIndex(bytes);
    assert.ok(index.capacity * 40 < bytes && index.capacity * 44 > bytes * 0.9, `${index.capacity} rows in ${bytes}`);
  }
});

test('the index keeps as many receipts as docs/config.md states', () => {
  const MIB = KIB * KIB;
  for (const max_bytes of [16 * MIB, 2048 * MIB, 64 * 1024 * MIB]) {
    const { capacity } = new ReceiptIndex(Math.floor(max_bytes / 100));
    const each_mib = capacity / (max_bytes / MIB);
    assert.ok(each_mib > 220 && each_mib < 260, `${each_mib} receipts for each MiB of ${max_bytes}`);
  }
});

/** Adds signed rows of a segment. */
function fill(index: ReceiptIndex, segment: number, rows: number): void {
  for (let at = 0; at < rows; at += 1) {
    const id = Buffer.alloc(16);
    id.writeUInt32BE(segment, 3);
    id.writeUInt32BE(Math.imul(index.end + 1, 0x9e3779b1) >>> 0, 12);
    const row = index.add(id, { segment, offset: at * 64 }, 1000 * segment);
    index.sign(row, { segment, offset: at * 64, leaf: 0 });
  }
}

test('a drop takes a short turn, and the memory of its rows serves later ones', () => {
  const bytes = 8 * KIB * KIB;
  const index = new ReceiptIndex(bytes);
  const rows = Math.floor(index.capacity / 4);
  for (const segment of [1, 2, 3, 4]) fill(index, segment, rows);
  const costs_us: number[] = [];
  for (let segment = 5; segment < 12; segment += 1) {
    const before = process.threadCpuUsage();
    assert.equal(index.dropOldest(), rows);
    const { user, system } = process.threadCpuUsage(before);
    costs_us.push(user + system);
    fill(index, segment, rows);
    assert.ok(index.bytes <= bytes, `${index.bytes} bytes`);
  }
  // Some of 50,000 rows or not: the best of seven tells, on a busy machine too.
  assert.ok(Math.min(...costs_us) < 1000, `a drop took ${costs_us.join(', ')} us`);
});
