import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { VirtualSched } from '@ron/kernel/testing';
import { INTEROP_LIMITS, type DeliveryDto } from '@ron/proto';
import { RecentDeliveries } from './recent-deliveries.ts';

const accepted = { at_ms: 1, provider: 'shop', outcome: 'accepted', corr_id: 'c' } as const;
const refused = { ...accepted, outcome: 'refused' } as const;
const seqs = (deliveries: readonly DeliveryDto[]): number[] => deliveries.map(({ seq }) => seq);

function filled(recent: RecentDeliveries, count: number, entry: Omit<DeliveryDto, 'seq'>): DeliveryDto[] {
  return Array.from({ length: count }, () => recent.add(entry));
}

test('a page holds entries of both kinds in the order of their numbers, and continues after the last one', () => {
  const recent = new RecentDeliveries();
  const all = [accepted, refused, refused, accepted].map((entry) => recent.add(entry));
  const first = recent.page(0, 3);
  assert.deepEqual(first.deliveries, all.slice(0, 3));
  assert.equal(first.lost, 0);
  const second = recent.page(first.next, 3);
  assert.deepEqual(second.deliveries, all.slice(3));
  assert.deepEqual(recent.page(second.next, 3), { deliveries: [], next: second.next, lost: 0 });
});

test('a reader of an empty list continues with the first entry', () => {
  const recent = new RecentDeliveries();
  const { next, lost, deliveries } = recent.page(0, 3);
  assert.deepEqual([lost, deliveries], [0, []]);
  const entry = recent.add(accepted);
  assert.deepEqual(recent.page(next, 3), { deliveries: [entry], next: entry.seq, lost: 0 });
});

test('a flood of refusals removes old refusals only, and `lost` counts them where they are missing', () => {
  const recent = new RecentDeliveries();
  const capacity = INTEROP_LIMITS.deliveries;
  const first = recent.add(accepted);
  const flood = filled(recent, capacity + 7, refused);
  const last = recent.add(accepted);
  const page = recent.page(0, 2);
  assert.deepEqual(seqs(page.deliveries), [first.seq, flood[7]!.seq]);
  assert.equal(page.lost, 7);
  const rest = recent.page(page.next, capacity + 7);
  assert.equal(rest.deliveries.length, capacity);
  assert.equal(rest.deliveries.at(-1)!.seq, last.seq);
  assert.equal(rest.lost, 0);
});

test('over all pages, every entry is either returned once or counted as lost', () => {
  const capacity = INTEROP_LIMITS.deliveries;
  const runs = fc.array(fc.tuple(fc.boolean(), fc.integer({ min: 1, max: 3000 })), { maxLength: 12 });
  fc.assert(
    fc.property(runs, fc.integer({ min: 300, max: 4000 }), (all, limit) => {
      const recent = new RecentDeliveries();
      const start = recent.page(0, 1).next;
      const added = all.flatMap(([isRefused, count]) => filled(recent, count, isRefused ? refused : accepted));
      const read: number[] = [];
      let lost = 0;
      for (let after = start; ;) {
        const page = recent.page(after, limit);
        assert.ok(page.lost >= 0 && page.deliveries.length <= limit);
        if (page.deliveries.length === 0) break;
        read.push(...seqs(page.deliveries));
        lost += page.lost;
        after = page.next;
      }
      const kept = (isRefused: boolean): number[] =>
        seqs(added.filter(({ outcome }) => (outcome === 'refused') === isRefused)).slice(-capacity);
      const expected = [...kept(true), ...kept(false)].toSorted((a, b) => a - b);
      assert.deepEqual(read, expected);
      assert.equal(lost, added.length - expected.length);
    }),
    { numRuns: Number(process.env['RON_FUZZ_RUNS'] ?? 30) },
  );
});

test('a reader that continues after a restart gets all entries of the new process', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const before = new RecentDeliveries();
    const { seq } = filled(before, 60, accepted).at(-1)!;
    clock.advanceSync(1);
    const after = new RecentDeliveries();
    const all = filled(after, 80, accepted);
    assert.deepEqual(after.page(seq, 500), { deliveries: all, next: all.at(-1)!.seq, lost: 0 });
  });
});

test('after the clock was set back, a number of an earlier process starts from the beginning', async () => {
  const later = new VirtualSched(3_600_000);
  const seq = await later.during(() => new RecentDeliveries().add(accepted).seq);
  await new VirtualSched().during(() => {
    const recent = new RecentDeliveries();
    const entry = recent.add(accepted);
    assert.deepEqual(recent.page(seq, 9), { deliveries: [entry], next: entry.seq, lost: 0 });
  });
});

test('numbers are safe integers of at most 16 digits, as the query of the route takes them', () => {
  const { seq } = new RecentDeliveries().add(accepted);
  assert.ok(Number.isSafeInteger(seq) && String(seq).length <= 16);
});
