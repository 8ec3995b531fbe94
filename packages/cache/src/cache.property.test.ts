/** The cache against a plain map of the last values: every value that it returns is right, and its counters add up. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VirtualSched } from '@ron/kernel/testing';
import fc from 'fast-check';
import { Cache, type CacheInit } from './cache.ts';

interface Known {
  readonly value: number | undefined;
  readonly fresh_until: number;
  readonly stale_until: number;
}

const key = fc.integer({ min: 0, max: 30 }).map((number) => `key ${number}`);
const command = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('get' as const), key }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('find' as const), key }) },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('set' as const),
      key,
      bytes: fc.oneof(fc.integer({ min: 0, max: 400 }), fc.integer({ min: 0, max: 6000 })),
      ttl_ms: fc.option(fc.integer({ min: 0, max: 100 }), { nil: undefined }),
      stale_ms: fc.constantFrom(0, 30, Infinity),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('negative' as const), key, ttl_ms: fc.integer({ min: 0, max: 100 }) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('offer' as const), key, bytes: fc.integer({ min: 0, max: 3000 }) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('delete' as const), key }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('sweep' as const), steps: fc.integer({ min: 0, max: 8 }) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), wait_ms: fc.integer({ min: 0, max: 60 }) }) },
  { weight: 1, arbitrary: fc.constant({ do: 'clear' as const }) },
);

const INITS: readonly CacheInit<number>[] = [
  { bytes_max: 40_000 },
  { bytes_max: 3000, entry_bytes_max: 2000 },
  { entries_max: 7 },
  { bytes_max: 20_000, entries_max: 12 },
];

for (const init of INITS) {
  test(`property: it agrees with a map of the last values: ${JSON.stringify(init)}`, async () => {
    const clock = new VirtualSched();
    await clock.during(() => {
      fc.assert(
        fc.property(fc.array(command, { maxLength: 300 }), (commands) => {
          const known = new Map<string, Known>();
          let evicted = 0;
          const cache = new Cache<number>({
            ...init,
            onEvict: (gone, value) => {
              evicted += 1;
              assert.equal(known.get(gone)?.value, value, 'the hook gets the value that was set');
              known.delete(gone);
            },
          });
          const set = (name: string, value: number | undefined, ttl_ms = Infinity, stale_ms = 0): void => {
            const fresh_until = clock.now_ms() + ttl_ms;
            known.set(name, { value, fresh_until, stale_until: fresh_until + stale_ms });
          };
          for (const [value, step] of commands.entries()) {
            const now_ms = clock.now_ms();
            if (step.do === 'wait') clock.advanceSync(step.wait_ms);
            else if (step.do === 'sweep') cache.sweep(step.steps);
            else if (step.do === 'clear') {
              cache.clear();
              known.clear();
            } else if (step.do === 'delete') assert.equal(cache.delete(step.key), known.delete(step.key));
            else if (step.do === 'set') {
              const { ttl_ms, stale_ms } = step;
              const isKept = cache.set(step.key, value, step.bytes, {
                ...(ttl_ms !== undefined && { ttl_ms }),
                stale_ms,
              });
              known.delete(step.key);
              if (isKept) set(step.key, value, ttl_ms, stale_ms);
            } else if (step.do === 'negative') {
              known.delete(step.key);
              if (cache.setNegative(step.key, { ttl_ms: step.ttl_ms })) set(step.key, undefined, step.ttl_ms);
            } else if (step.do === 'offer') {
              if (cache.offer(step.key, step.bytes, () => value)) {
                known.delete(step.key);
                set(step.key, value);
              }
            } else {
              const last = known.get(step.key);
              const isFresh = last !== undefined && now_ms < last.fresh_until;
              const isStale = last !== undefined && !isFresh && now_ms < last.stale_until;
              const expected = isFresh ? 'fresh' : isStale ? 'stale' : 'expired';
              if (step.do === 'get') assert.equal(cache.get(step.key), isFresh ? last.value : undefined);
              else {
                const found = cache.find(step.key);
                assert.equal(found?.state, last === undefined ? undefined : expected);
                assert.equal(found?.value, last?.value);
              }
            }
            assert.ok(cache.bytes <= (init.bytes_max ?? Infinity), `${cache.bytes} bytes`);
            assert.ok(cache.size <= (init.entries_max ?? Infinity));
            assert.equal(cache.size, known.size);
            assert.equal(cache.evictions_total + cache.expirations_total, evicted);
          }
        }),
        { numRuns: 200 },
      );
    });
  });
}
