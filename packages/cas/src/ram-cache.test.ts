import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { RamCache } from './ram-cache.ts';

test('it never holds more than its bytes, and gives back what was put last', () => {
  const calls = fc.array(
    fc.record({ key: fc.integer({ min: 0, max: 30 }), bytes: fc.integer({ min: 0, max: 6000 }), isGet: fc.boolean() }),
    { maxLength: 300 },
  );
  fc.assert(
    fc.property(calls, (sequence) => {
      const cache = new RamCache<number>(40_000);
      const last = new Map<number, number>();
      for (const [index, { key, bytes, isGet }] of sequence.entries()) {
        if (isGet) {
          const value = cache.get(`${key}`);
          if (value !== undefined) assert.equal(value, last.get(key));
        } else {
          cache.put(`${key}`, index, bytes);
          if (bytes <= 5000) last.set(key, index);
        }
        assert.ok(cache.used_bytes <= 40_000);
      }
    }),
  );
});

test('a sweep over many things does not push out what is used again and again', () => {
  const cache = new RamCache<string>(100_000);
  cache.put('hot', 'hot', 10_000);
  assert.equal(cache.get('hot'), 'hot');
  for (let index = 0; index < 1000; index++) cache.put(`cold ${index}`, 'cold', 10_000);
  assert.equal(cache.get('hot'), 'hot');
});

test('what is larger than an eighth is not kept', () => {
  const cache = new RamCache<string>(800);
  cache.put('large', 'x', 101);
  assert.equal(cache.get('large'), undefined);
  assert.equal(cache.used_bytes, 0);
});

test('what is offered once is not made, what is offered again is kept', () => {
  const cache = new RamCache<string>(100_000);
  const make = (): string => 'made';
  cache.offer('a', 10_000, () => assert.fail('nobody asked twice'));
  assert.equal(cache.has('a'), false);
  cache.offer('a', 10_000, make);
  assert.equal(cache.get('a'), 'made');
  cache.offer('large', 12_501, make);
  cache.offer('large', 12_501, make);
  assert.equal(cache.has('large'), false, 'larger than an eighth');
  // An offer is forgotten when as much was offered after it as is kept.
  cache.offer('old', 1, make);
  for (let index = 0; index < 10; index++) cache.offer(`key ${index}`, 10_000, make);
  cache.offer('old', 1, make);
  assert.equal(cache.has('old'), false);
});

test('entries of no bytes count as well', () => {
  const cache = new RamCache<string>(10_000);
  for (let index = 0; index < 1000; index++) cache.put(`key ${index}`, 'x', 0);
  const kept = Array.from({ length: 1000 }, (_, index) => cache.has(`key ${index}`)).filter(Boolean).length;
  assert.ok(kept > 5 && kept < 50, `${kept} are kept`);
});
