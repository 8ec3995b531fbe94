/** A purge removes assets from memory and disk, also those whose fill is in progress. Other assets stay. */
import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import type { PurgeSelection } from '../../src/cache/asset-cache.ts';
import { bodyOf, fill, forgetRam, keyOf, metaOf, read, signal, startCache, write } from './support.ts';

const OTHER = 'live/other.example.org:8443/a.png';

for (const mode of ['disk', 'amnesia'] as const) {
  const dirOf = (t: TestContext) => (mode === 'disk' ? { dir: tempDirFor(t) } : {});
  suite(`with ${mode}`, () => {
    const cases: [string, PurgeSelection, string[]][] = [
      ['a key', { key: keyOf('a/1') }, [keyOf('a/1')]],
      ['a prefix', { prefix: 'live/tiles.example.org/a/' }, [keyOf('a/1'), keyOf('a/2')]],
      ['a host', { host: 'Other.example.org:8443' }, [OTHER]],
      ['a host without its port', { host: 'other.example.org' }, []],
    ];
    for (const [name, selection, purged] of cases) {
      test(`of ${name}`, async (t) => {
        await using opened = await startCache(dirOf(t));
        const { cache } = opened;
        const keys = [keyOf('a/1'), keyOf('a/2'), keyOf('b/1'), OTHER];
        for (const [seed, key] of keys.entries()) await fill(cache, key, bodyOf(1000, seed));
        const { generation } = cache;
        assert.equal(await cache.purge(selection, signal), purged.length);
        assert.equal(cache.generation, generation + 1);
        for (const key of keys) assert.equal((await read(cache, key)) === undefined, purged.includes(key), key);
      });
    }

    test('assets with the same bytes under other keys stay', async (t) => {
      await using opened = await startCache(dirOf(t));
      const { cache } = opened;
      const body = bodyOf(1000, 1);
      await fill(cache, keyOf('a'), body);
      await fill(cache, keyOf('b'), body);
      assert.equal(await cache.purge({ key: keyOf('a') }, signal), 1);
      if (mode === 'disk') forgetRam(cache);
      assert.equal(await read(cache, keyOf('a')), undefined);
      assert.deepEqual((await read(cache, keyOf('b')))?.bytes, body);
    });

    test('a fill that began before it is not kept, whether its body is complete or not', async (t) => {
      await using opened = await startCache(dirOf(t));
      const { cache } = opened;
      const bytes = bodyOf(1000, 1);
      const { generation } = cache;
      const body = await write(cache, bytes);
      const inProgress = fill(cache, keyOf('b'), bodyOf(1000, 2));
      await cache.purge({ prefix: 'live/' }, signal);
      assert.equal(await cache.keep(metaOf(keyOf('a'), bytes), body, generation, signal), 'purged');
      await inProgress;
      for (const key of [keyOf('a'), keyOf('b')]) assert.equal(await read(cache, key), undefined);
      assert.ok(await fill(cache, keyOf('a'), bytes), 'a later fill is kept');
      assert.deepEqual((await read(cache, keyOf('a')))?.bytes, bytes);
    });
  });
}

test('a withdrawn asset is not found, nor kept by a fill in progress, and does not come back after a restart', async (t) => {
  const dir = tempDirFor(t);
  const first = await startCache({ dir });
  const { cache } = first;
  await fill(cache, keyOf('a'), bodyOf(1000, 1));
  await fill(cache, keyOf('b'), bodyOf(1000, 2));
  const body = await write(cache, bodyOf(1000, 3));
  const inProgress = cache.keep(metaOf(keyOf('c'), bodyOf(1000, 3)), body, cache.generation, signal);
  for (const name of ['a', 'c', 'unknown']) cache.withdraw(keyOf(name));
  assert.equal(await read(cache, keyOf('a')), undefined);
  assert.equal(await inProgress, 'purged');
  await first.close();
  await using again = await startCache({ dir });
  for (const name of ['a', 'c']) assert.equal(await read(again.cache, keyOf(name)), undefined);
  assert.deepEqual((await read(again.cache, keyOf('b')))?.bytes, bodyOf(1000, 2));
});

test('purged assets do not come back after a restart', async (t) => {
  const dir = tempDirFor(t);
  const first = await startCache({ dir });
  await fill(first.cache, keyOf('a'), bodyOf(1000, 1));
  await fill(first.cache, keyOf('b'), bodyOf(300_000, 2));
  await first.cache.purge({ key: keyOf('a') }, signal);
  await first.close();
  await using again = await startCache({ dir });
  // At once, while the keys are loaded.
  const purge = again.cache.purge({ key: keyOf('b') }, signal);
  assert.equal(await read(again.cache, keyOf('b')), undefined);
  assert.equal(await purge, 1);
  assert.equal(await read(again.cache, keyOf('a')), undefined);
});

test('a purge covers negative entries', async () => {
  await using opened = await startCache();
  const { cache } = opened;
  cache.ram.setNegative(keyOf('a'), 60_000);
  assert.equal(cache.ram.find(keyOf('a'))?.isNegative, true);
  assert.equal(await cache.purge({ key: keyOf('a') }, signal), 0);
  assert.equal(cache.ram.find(keyOf('a')), undefined);
});
