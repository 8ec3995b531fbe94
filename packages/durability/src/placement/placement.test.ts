import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { mostInDomain, Placement, type Place } from './placement.ts';

const idOf = (number: number): Uint8Array => blake3(Buffer.from(`record ${number}`));
const IDS = Array.from({ length: 2000 }, (_, index) => idOf(index));

const places = (count: { min: number; max: number }): fc.Arbitrary<Place[]> =>
  fc.uniqueArray(
    fc.record({
      id: fc.string({ minLength: 1, maxLength: 8 }),
      domain: fc.constantFrom('a', 'b', 'c', 'd'),
      weight: fc.integer({ min: 1, max: 8 }),
    }),
    { minLength: count.min, maxLength: count.max, selector: (place) => place.id },
  );

const idsOf = (chosen: readonly Place[]): string[] => chosen.map((place) => place.id);
const domainsOf = (chosen: readonly Place[]): number => new Set(chosen.map((place) => place.domain)).size;

test('no domain has two copies while there are enough domains, and no volume is left out', () => {
  fc.assert(
    fc.property(places({ min: 1, max: 9 }), fc.integer({ min: 1, max: 5 }), fc.nat(), (all, copies, number) => {
      const chosen = new Placement(all).choose(idOf(number), copies);
      assert.equal(new Set(idsOf(chosen)).size, Math.min(copies, all.length));
      assert.equal(domainsOf(chosen), Math.min(copies, domainsOf(all)));
    }),
  );
});

test('the order does not depend on how the volumes are listed', () => {
  fc.assert(
    fc.property(places({ min: 1, max: 9 }), fc.nat(), (all, number) => {
      const id = idOf(number);
      assert.deepEqual(new Placement(all).order(id), new Placement(all.toReversed()).order(id));
    }),
  );
});

test('a removed volume moves one copy of its records; an added one, one copy of those that it gets', () => {
  fc.assert(
    fc.property(places({ min: 2, max: 9 }), fc.integer({ min: 1, max: 4 }), fc.nat(), (all, copies, number) => {
      const [gone, ...rest] = all as [Place, ...Place[]];
      const id = idOf(number);
      const before = idsOf(new Placement(all).choose(id, copies));
      const after = idsOf(new Placement(rest).choose(id, copies));
      const moved = after.filter((each) => !before.includes(each));
      const stayed = before.filter((each) => each !== gone.id && !after.includes(each));
      assert.deepEqual(stayed, [], 'a copy left a volume that is still there');
      assert.ok(moved.length <= (before.includes(gone.id) ? 1 : 0), `${moved.length} copies moved`);
    }),
    { numRuns: 500 },
  );
});

/** How many standard deviations a count may differ from its expectation. 5 fails one run in a million. */
const DEVIATIONS_MAX = 5;

test('volumes get records in proportion to their weight', () => {
  const all = [1, 2, 3, 4].map((weight) => ({ id: `v${weight}`, domain: `d${weight}`, weight }));
  const placement = new Placement(all);
  const counts = new Map<string, number>();
  for (const id of IDS) {
    const [first] = placement.choose(id, 1);
    counts.set(first!.id, (counts.get(first!.id) ?? 0) + 1);
  }
  for (const { id, weight } of all) {
    const share = weight / 10;
    const deviation = Math.sqrt(IDS.length * share * (1 - share));
    const off = Math.abs(counts.get(id)! - IDS.length * share) / deviation;
    assert.ok(off < DEVIATIONS_MAX, `${id} has ${counts.get(id)} of ${IDS.length}`);
  }
});

test('equal volumes in equal domains share all copies evenly, including those of a lost one', () => {
  const all = Array.from({ length: 6 }, (_, index) => ({ id: `v${index}`, domain: `d${index % 3}`, weight: 1 }));
  for (const left of [all, all.slice(1)]) {
    const counts = new Map<string, number>();
    for (const id of IDS) {
      for (const place of new Placement(left).choose(id, 2)) counts.set(place.id, (counts.get(place.id) ?? 0) + 1);
    }
    const partners = left.length === all.length ? left : left.filter((place) => place.domain !== 'd0');
    const total = partners.reduce((sum, place) => sum + counts.get(place.id)!, 0);
    for (const { id } of partners) {
      const off = Math.abs(counts.get(id)! - total / partners.length);
      assert.ok(off < DEVIATIONS_MAX * Math.sqrt(total / partners.length), `${id} has ${counts.get(id)}`);
    }
  }
});

test('items with a volume each are spread over the domains as evenly as possible', () => {
  fc.assert(
    fc.property(places({ min: 1, max: 9 }), fc.integer({ min: 1, max: 9 }), (all, count) => {
      const most = mostInDomain(all, count);
      const order = new Placement(all).choose(idOf(1), count);
      const sizes = Map.groupBy(order, (place) => place.domain);
      const largest = Math.max(...[...sizes.values()].map((each) => each.length));
      assert.equal(most, all.length < count ? count : largest);
    }),
  );
});
