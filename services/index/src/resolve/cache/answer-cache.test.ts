import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, isRonError } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { addressOf, dhtOf, nameOf, objectOf, openResolving } from '../testing/open-resolving.ts';
import { PINS_MAX } from '../../publish/names.ts';

const ADDRESS = addressOf('object');

test('[index I-2] a pinned key is looked up, kept, refreshed before it expires, and unpinned', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using opened = openResolving({ entries_max: 2 });
    const { cache } = opened.resolving;
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    cache.pin(ADDRESS);
    await clock.advance(300);
    assert.ok(cache.get(ADDRESS)?.resolution, 'it is looked up without a request');
    for (let second = 0; second < 25; second += 1) {
      await clock.advance(1000);
      assert.ok(cache.get(ADDRESS)?.resolution, `after ${second} s`);
    }
    assert.ok(opened.store.reads >= 3 && opened.store.reads <= 5, `${opened.store.reads} reads in 25 s`);
    for (let at = 0; at < 10; at += 1) {
      using deadline = Deadline.after('test', 1200);
      const target = { kind: 'address', address: addressOf(`${at}`) } as const;
      await opened.resolving.lookups
        .find({ lane: '/resolve', target, mode: 'usual', deadline, ip: '' })
        .catch(() => undefined);
    }
    await clock.advance(0);
    assert.ok(cache.get(ADDRESS)?.resolution, 'eviction does not reach it');
    opened.store.gate = () => Promise.reject(new Error('the database is gone'));
    await clock.advance(30_000);
    assert.ok(cache.get(ADDRESS)?.resolution, 'it is served while it cannot be refreshed');
    opened.resolving.invalidator.invalidate([ADDRESS]);
    assert.equal(cache.get(ADDRESS), undefined, 'a change outdates it');
    cache.unpin(ADDRESS);
    const reads = opened.store.reads;
    await clock.advance(5000);
    assert.equal(opened.store.reads, reads);
  });
});

test('an incomplete refresh does not replace the complete answer of a pinned key', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const [near, far] = ['12D3KooWNear', '12D3KooWFar'].map((id) => ({
      id,
      url: `http://192.0.2.1/${id}`,
      reporters: 1,
    }));
    let found = { providers: [near!, far!], complete: true };
    let asked = 0;
    const findProviders: ReturnType<typeof dhtOf>['findProviders'] = async (...all) => {
      asked += 1;
      return await dhtOf(found).findProviders(...all);
    };
    await using opened = openResolving({ dht: () => ({ ...dhtOf({}), findProviders }) });
    const { cache } = opened.resolving;
    const providers = (): number | undefined => cache.get(ADDRESS)?.resolution?.providers.length;
    cache.pin(ADDRESS);
    await clock.advance(300);
    assert.equal(providers(), 2);
    found = { providers: [near!], complete: false };
    const before = asked;
    await clock.advance(30_000);
    assert.ok(asked > before, 'it was refreshed');
    assert.equal(providers(), 2);
    found = { providers: [near!], complete: true };
    await clock.advance(30_000);
    assert.equal(providers(), 1);
  });
});

test('pins are bounded', async () => {
  await using opened = openResolving();
  for (let at = 0; at < PINS_MAX; at += 1) opened.resolving.cache.pin(addressOf(`${at}`));
  assert.throws(
    () => opened.resolving.cache.pin(ADDRESS),
    (error) => isRonError(error, 'storage_full'),
  );
});

test('warm-up fills the cache; clear outdates everything; a purge removes expired answers', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using opened = openResolving();
    const { resolving, store } = opened;
    store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    store.setName(nameOf({ label: 'a', value: ADDRESS }));
    await resolving.warmUp([ADDRESS, 'name:a', 'name:absent', 'nonsense'], new AbortController().signal);
    await clock.advance(0);
    for (const key of [ADDRESS, 'name:a']) assert.ok(resolving.cache.get(key)?.resolution, key);
    assert.equal(resolving.cache.get('name:absent')?.refusal?.code, 'not_found');
    resolving.invalidator.clear();
    assert.equal(resolving.cache.get(ADDRESS), undefined);
    await resolving.warmUp([ADDRESS, 'name:a'], new AbortController().signal);
    await clock.advance(20_000);
    resolving.cache.purge();
    await clock.advance(1000);
    assert.equal(resolving.cache.size, 0);
  });
});
