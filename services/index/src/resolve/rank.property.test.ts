import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { rank, type Candidate } from './rank.ts';

const candidate: fc.Arbitrary<Candidate> = fc.record({
  id: fc.stringMatching(/^[a-z]{1,4}$/),
  url: fc.constant('http://127.0.0.1:1'),
  proof: fc.constantFrom('proven' as const, 'unproven' as const, 'failed' as const),
  age_s: fc.option(fc.integer({ min: 0, max: 200_000 })),
  latency_ms: fc.option(fc.double({ min: 0, max: 5000, noNaN: true })),
  breaker: fc.constantFrom('closed' as const, 'open' as const, 'half_open' as const),
});
const candidates = fc.uniqueArray(candidate, { selector: ({ id }) => id, maxLength: 20 });
const place = (all: readonly Candidate[], id: string): number => rank(all).findIndex((each) => each.id === id);

test('a ranking lists all but the failed providers, the proven ones first, in an order of its own', () => {
  fc.assert(
    fc.property(
      candidates.chain((all) => fc.tuple(fc.constant(all), fc.shuffledSubarray(all, { minLength: all.length }))),
      ([all, shuffled]) => {
        const ranked = rank(all);
        assert.deepEqual(rank(shuffled), ranked);
        const listed = all.filter(({ proof }) => proof !== 'failed').map(({ id }) => id);
        assert.deepEqual(ranked.map(({ id }) => id).toSorted(), listed.toSorted());
        const firstUnproven = ranked.findIndex(({ proof }) => proof === 'unproven');
        const rest = firstUnproven < 0 ? [] : ranked.slice(firstUnproven);
        assert.ok(rest.every(({ proof }) => proof === 'unproven'));
      },
    ),
  );
});

test('no provider gains a place by being older, slower or less reliable', () => {
  const worse = fc.oneof(
    fc
      .integer({ min: 1, max: 100_000 })
      .map((more) => (each: Candidate) => ({ ...each, age_s: (each.age_s ?? 43_200) + more })),
    fc.integer({ min: 1, max: 9000 }).map((more) => (each: Candidate) => ({
      ...each,
      latency_ms: (each.latency_ms ?? 250) + more,
    })),
    fc.constant((each: Candidate) => ({ ...each, breaker: 'open' as const })),
    fc.constant((each: Candidate) => (each.proof === 'proven' ? { ...each, proof: 'unproven' as const } : each)),
  );
  fc.assert(
    fc.property(fc.tuple(candidates, fc.nat(), worse), ([all, at, change]) => {
      const chosen = all[at % Math.max(all.length, 1)];
      if (chosen === undefined || chosen.proof === 'failed') return;
      const changed = all.map((each) => (each === chosen ? change(each) : each));
      assert.ok(place(changed, chosen.id) >= place(all, chosen.id));
    }),
  );
});
