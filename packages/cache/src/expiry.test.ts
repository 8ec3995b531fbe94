import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VirtualSched } from '@ron/kernel/testing';
import { Cache } from './cache.ts';

const withClock = async (use: (clock: VirtualSched) => void): Promise<void> => {
  const clock = new VirtualSched(1000.5);
  await clock.during(() => use(clock));
};

test('an entry is fresh, then stale, then expired, and find returns the state', () =>
  withClock((clock) => {
    const expired: string[] = [];
    const cache = new Cache<string>({ entries_max: 10, onEvict: (key, _value, why) => expired.push(`${key} ${why}`) });
    cache.set('key', 'value', 0, { ttl_ms: 100, stale_ms: 50 });
    assert.deepEqual(cache.find('key'), { state: 'fresh', value: 'value', isNegative: false, ttl_ms: 100 });
    clock.advanceSync(99);
    assert.equal(cache.get('key'), 'value');
    clock.advanceSync(1);
    assert.equal(cache.get('key'), undefined, 'get gives fresh values only');
    assert.equal(cache.peek('key'), undefined);
    assert.deepEqual(cache.find('key'), { state: 'stale', value: 'value', isNegative: false, ttl_ms: 0 });
    clock.advanceSync(50);
    assert.deepEqual(cache.find('key'), { state: 'expired', value: 'value', isNegative: false, ttl_ms: -50 });
    assert.equal(cache.find('key'), undefined);
    assert.deepEqual(expired, ['key expired']);
    const { hits_total, stale_hits_total, misses_total, expirations_total } = cache;
    assert.deepEqual([hits_total, stale_hits_total, misses_total, expirations_total], [2, 1, 3, 1]);
  }));

test('an entry is not fresh or stale for longer than its lifetime, wherever in a millisecond it was set', () =>
  withClock((clock) => {
    const cache = new Cache<string>({ entries_max: 10 });
    clock.advanceSync(0.75);
    cache.set('key', 'value', 0, { ttl_ms: 2, stale_ms: 1.5 });
    // At most 1 ms shorter.
    clock.advanceSync(1);
    assert.equal(cache.find('key')?.state, 'fresh');
    clock.advanceSync(1);
    assert.equal(cache.find('key')?.state, 'stale');
    clock.advanceSync(1.5);
    assert.equal(cache.find('key')?.state, 'expired');
  }));

test('an entry without any lifetime is never fresh, wherever in a millisecond it was set', () =>
  withClock((clock) => {
    const cache = new Cache<string>({ entries_max: 10 });
    for (let step = 0; step < 20; step++) {
      for (const ttl_ms of [0, -1]) {
        cache.set('key', 'value', 0, { ttl_ms, stale_ms: Infinity });
        assert.deepEqual([cache.get('key'), cache.find('key')?.state], [undefined, 'stale']);
        cache.setNegative('absent', { ttl_ms });
        assert.equal(cache.find('absent')?.state, 'expired');
      }
      clock.advanceSync(0.1);
    }
  }));

test('get removes an expired negative entry', () =>
  withClock((clock) => {
    const cache = new Cache<string>({ entries_max: 10 });
    cache.setNegative('key', { ttl_ms: 1 });
    assert.equal(cache.get('key'), undefined);
    assert.equal(cache.size, 1);
    clock.advanceSync(1);
    assert.equal(cache.get('key'), undefined);
    assert.deepEqual([cache.size, cache.expirations_total], [0, 1]);
  }));

test('without a lifetime an entry stays fresh, and an unlimited stale time ends with its eviction', () =>
  withClock((clock) => {
    const cache = new Cache<string>({ entries_max: 10 });
    cache.set('plain', 'value', 0);
    cache.set('stale', 'value', 0, { ttl_ms: 10, stale_ms: Infinity });
    clock.advanceSync(1e9);
    assert.equal(cache.get('plain'), 'value');
    assert.equal(cache.find('plain')?.ttl_ms, Infinity);
    assert.equal(cache.find('stale')?.state, 'stale');
  }));

test('a negative entry has its own lifetime and is replaced by a value, and the reverse', () =>
  withClock((clock) => {
    const cache = new Cache<string>({ entries_max: 10 });
    cache.setNegative('key', { ttl_ms: 10 });
    assert.deepEqual(cache.find('key'), { state: 'fresh', value: undefined, isNegative: true, ttl_ms: 10 });
    assert.equal(cache.get('key'), undefined);
    assert.equal(cache.has('key'), false);
    assert.equal(cache.negative_hits_total, 1);
    clock.advanceSync(10);
    assert.equal(cache.find('key')?.state, 'expired');
    cache.setNegative('key', { ttl_ms: 10 });
    cache.set('key', 'value', 0);
    assert.equal(cache.get('key'), 'value');
    cache.setNegative('key', { ttl_ms: 10 });
    assert.equal(cache.get('key'), undefined);
    assert.equal(cache.size, 1);
  }));

test('expired entries that no request meets are removed by sweeps and by later sets', () =>
  withClock((clock) => {
    const cache = new Cache<string>({ entries_max: 1000 });
    for (let index = 0; index < 100; index++) cache.set(`old ${index}`, 'x', 0, { ttl_ms: 10 });
    for (let index = 0; index < 100; index++) cache.set(`kept ${index}`, 'x', 0, { ttl_ms: 1e6 });
    clock.advanceSync(10);
    assert.equal(cache.size, 200);
    let swept = 0;
    for (let step = 0; step < 40; step++) swept += cache.sweep(10);
    assert.equal(swept, 100);
    assert.equal(cache.size, 100);
    for (let index = 0; index < 100; index++) cache.set(`old ${index}`, 'x', 0, { ttl_ms: 10 });
    clock.advanceSync(10);
    for (let index = 0; index < 400; index++) cache.set('other', 'x', 0);
    assert.equal(cache.size, 101);
  }));

test('get removes an expired entry, and a sweep goes on after the entry at its place was deleted', () =>
  withClock((clock) => {
    const cache = new Cache<string>({ entries_max: 10 });
    for (const key of ['a', 'b', 'c', 'd', 'e']) cache.set(key, key, 0, { ttl_ms: 10 });
    assert.equal(cache.sweep(2), 0);
    for (const key of ['b', 'c', 'd', 'e']) cache.delete(key);
    clock.advanceSync(10);
    assert.equal(cache.sweep(4), 1);
    cache.set('f', 'f', 0, { ttl_ms: 10 });
    clock.advanceSync(10);
    assert.equal(cache.get('f'), undefined);
    assert.equal(cache.size, 0);
    assert.equal(cache.expirations_total, 2);
  }));

test('a sweep without lifetimes examines nothing, and one of an empty cache ends', () =>
  withClock(() => {
    const cache = new Cache<string>({ entries_max: 10 });
    assert.equal(cache.sweep(1000), 0);
    cache.set('key', 'value', 0, { ttl_ms: 1 });
    cache.delete('key');
    assert.equal(cache.sweep(1000), 0);
  }));
