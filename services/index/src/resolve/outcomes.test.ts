/** Every outcome of a lookup, as the table of the specification states it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, isRonError, RonError } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { checkTarget } from '@ron/proto';
import type { Dht, NameFound } from '../dht/dht.ts';
import {
  addressOf,
  dhtOf,
  KEY,
  nameOf,
  objectOf,
  openResolving,
  OTHER_KEY,
  SELF,
  type OpenedInit,
} from './testing/open-resolving.ts';

const ADDRESS = addressOf('object');
const PEER = { id: '12D3KooWPeer', url: 'http://192.0.2.1:7101', reporters: 1 };
const FOUND: NameFound = { values: [], answers: 0, complete: true, empty: undefined };
type Opened = ReturnType<typeof openResolving>;

async function outcome(opened: Opened, key: string, mode: 'usual' | 'full' = 'usual') {
  const parsed = checkTarget(key);
  assert.ok(parsed.ok);
  using deadline = Deadline.after('test', 1200);
  try {
    const { resolving } = opened;
    return await resolving.lookups.find({ lane: '/resolve', target: parsed.target, mode, deadline, ip: '::1' });
  } catch (error) {
    assert.ok(isRonError(error), String(error));
    return { code: error.code, reason: error.details?.['reason'] };
  }
}

async function withOpened(init: OpenedInit, use: (opened: Opened, clock: VirtualSched) => Promise<void>) {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using opened = openResolving(init);
    await use(opened, clock);
  });
}

test('standalone: an announced object is found, any other is absent', () =>
  withOpened({}, async (opened) => {
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    assert.equal(((await outcome(opened, ADDRESS)) as { source: string }).source, 'db');
    assert.deepEqual(await outcome(opened, addressOf('other')), { code: 'not_found', reason: 'none_has_it' });
    opened.evidence.verdicts.set(SELF.id, 'failed');
    opened.resolving.invalidator.invalidate([ADDRESS]);
    const unlisted = await outcome(opened, ADDRESS);
    assert.deepEqual(unlisted, { code: 'not_found', reason: 'none_has_it' }, 'this node failed its proof');
    opened.store.setName(nameOf({ label: 'good', value: ADDRESS }));
    const named = await outcome(opened, 'name:good');
    assert.deepEqual('providers' in named && named.providers, [], 'a name with a known address is an answer');
  }));

test('join: a database that fails is its own refusal, not that of peers which have nothing', () =>
  withOpened({ dht: () => dhtOf({ empty: 'none_has_it' }) }, async (opened) => {
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    opened.store.setName(nameOf({ label: 'good', value: ADDRESS }));
    opened.store.gate = () => Promise.reject(new RonError('timeout', 'the index database does not answer'));
    for (const key of [ADDRESS, `name:good@${KEY}`]) {
      assert.deepEqual(await outcome(opened, key), { code: 'timeout', reason: undefined });
    }
  }));

test('a pinned answer of a moved name ends when the first record of the way expires', () =>
  withOpened({}, async (opened, clock) => {
    const now_s = Math.floor(clock.wall_ms() / 1000);
    const key = `name:m@${KEY}`;
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    opened.store.setName(nameOf({ label: 'm', moved_to: OTHER_KEY, not_after: now_s + 5 }));
    opened.store.setName(nameOf({ label: 'm', key: OTHER_KEY, value: ADDRESS, not_after: now_s + 100_000 }));
    const { cache } = opened.resolving;
    cache.pin(key);
    await outcome(opened, key);
    await clock.advance(1000);
    assert.equal(cache.get(key)?.resolution?.address, ADDRESS);
    opened.store.gate = () => Promise.reject(new RonError('timeout', 'the index database does not answer'));
    await clock.advance(60_000);
    assert.equal(cache.get(key)?.resolution, undefined);
  }));

test('names: found, removed, expired, unknown, moved, moved too often', () =>
  withOpened({}, async (opened, clock) => {
    const now_s = Math.floor(clock.wall_ms() / 1000);
    const { store } = opened;
    store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    store.setName(nameOf({ label: 'good', value: ADDRESS, seq: 1 }));
    store.setName({ ...nameOf({ label: 'forked', value: ADDRESS }), rival: nameOf({ label: 'forked' }) });
    store.setName(nameOf({ label: 'removed' }));
    store.setName(nameOf({ label: 'expired', value: ADDRESS, not_after: now_s }));
    store.setName(nameOf({ label: 'moved', moved_to: OTHER_KEY }));
    store.setName(nameOf({ label: 'moved', key: OTHER_KEY, value: ADDRESS, ttl_s: 3 }));
    store.setName(nameOf({ label: 'loop', moved_to: OTHER_KEY }));
    store.setName(nameOf({ label: 'loop', key: OTHER_KEY, moved_to: KEY }));
    const good = await outcome(opened, 'name:good');
    assert.ok('name' in good && good.name !== undefined);
    assert.deepEqual([good.key, good.address, good.name.conflict], ['name:good', ADDRESS, false]);
    const forked = await outcome(opened, `name:forked@${KEY}`);
    assert.ok('name' in forked && forked.name?.conflict === true);
    const moved = await outcome(opened, 'name:moved');
    assert.ok('name' in moved && moved.name?.key === OTHER_KEY && moved.ttl_ms === 3000);
    for (const [label, reason] of [
      ['removed', 'removed'],
      ['expired', 'expired'],
      ['absent', 'unknown_name'],
      ['loop', 'moved_too_often'],
    ]) {
      assert.deepEqual(await outcome(opened, `name:${label}`), { code: 'not_found', reason });
    }
  }));

test('a name that only the DHT knows is adopted, and the answer says so', async () => {
  const name = nameOf({ label: 'far', value: ADDRESS }, false);
  let opened: Opened;
  const findName = async () => {
    // Adoption stores the record.
    opened.store.setName(name);
    return { values: [name.record], answers: 1, complete: true, empty: undefined };
  };
  await withOpened({ dht: () => ({ ...dhtOf({ empty: 'none_has_it' }), findName }) }, async (given) => {
    opened = given;
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    const found = await outcome(opened, 'name:far');
    assert.ok('providers' in found, JSON.stringify(found));
    assert.deepEqual([found.address, found.source, found.name?.seq], [ADDRESS, 'dht', 1]);
  });
});

test('an answer is not cached beyond the expiry of its name', () =>
  withOpened({}, async (opened, clock) => {
    const now_s = Math.floor(clock.wall_ms() / 1000);
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    opened.store.setName(nameOf({ label: 'brief', value: ADDRESS, ttl_s: 60, not_after: now_s + 3 }));
    const found = await outcome(opened, 'name:brief');
    assert.ok('ttl_ms' in found);
    assert.ok(found.ttl_ms > 0 && found.ttl_ms <= 3000, `${found.ttl_ms} ms`);
  }));

test('a name whose object has no provider is still an answer', () =>
  withOpened({ dht: () => dhtOf({ empty: 'no_route', complete: false }) }, async (opened) => {
    opened.store.setName(nameOf({ label: 'good', value: ADDRESS }));
    const found = await outcome(opened, 'name:good');
    assert.ok('providers' in found);
    assert.deepEqual([found.address, found.providers.length, found.complete], [ADDRESS, 0, false]);
  }));

test('an own name is confirmed by the DHT; a newer record of another node wins', async () => {
  const newer = nameOf({ label: 'good', value: addressOf('newer'), seq: 2, previous: '00'.repeat(32) });
  const dht = { ...dhtOf({}), findName: async () => ({ ...FOUND, values: [new Uint8Array(1)], answers: 5 }) };
  await withOpened({ dht: () => dht }, async (opened) => {
    const older = nameOf({ label: 'good', value: ADDRESS });
    opened.store.setName(older);
    // The verification of the record stores it.
    opened.store.adopt_gate = async () => opened.store.setName(newer);
    const found = await outcome(opened, 'name:good');
    assert.ok('name' in found);
    assert.deepEqual([found.name?.seq, found.address, found.complete], [2, addressOf('newer'), true]);
  });
});

test('an own name whose peers stall is answered from the database within a part of the budget, incomplete', async () => {
  const findName = (_key: string, _label: string, { signal }: { readonly signal: AbortSignal }) =>
    new Promise<NameFound>((resolve) => {
      signal.addEventListener('abort', () => resolve({ ...FOUND, complete: false, empty: 'deadline' }));
    });
  await withOpened({ dht: () => ({ ...dhtOf({}), findName }) }, async (opened, clock) => {
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    opened.store.setName(nameOf({ label: 'good', value: ADDRESS }));
    const answer = outcome(opened, 'name:good');
    await clock.advance(300);
    const found = await answer;
    assert.ok('name' in found);
    assert.deepEqual([found.address, found.source, found.complete], [ADDRESS, 'db', false]);
    assert.equal(clock.now_ms(), 300);
  });
});

test('the DHT finds nothing: 404, 504, 503 BreakerOpen, 503 no_route', async () => {
  for (const [empty, code] of [
    ['none_has_it', 'not_found'],
    ['deadline', 'timeout'],
    ['breakers_open', 'breaker_open'],
    ['no_route', 'no_route'],
  ] as const) {
    await withOpened({ dht: () => dhtOf({ empty, complete: empty === 'none_has_it' }) }, async (opened) => {
      for (const key of [ADDRESS, 'name:absent']) {
        assert.equal(((await outcome(opened, key)) as { code: string }).code, code, `${empty} ${key}`);
      }
      opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
      const local = await outcome(opened, ADDRESS, 'full');
      assert.ok('providers' in local && local.providers.length === 1, 'local data is an answer');
    });
  }
  const unjoined: Pick<Dht, 'findProviders' | 'findName'> = {
    findProviders: async () => ({ providers: [], complete: false, empty: 'no_route' }),
    findName: async () => ({ values: [], answers: 0, complete: false, empty: 'no_route' }),
  };
  await withOpened({ dht: () => unjoined }, async (opened) => {
    assert.equal(((await outcome(opened, ADDRESS)) as { code: string }).code, 'no_route');
  });
});

test('the DHT is asked only if the database does not suffice, unless the lookup is full', async () => {
  let asked = 0;
  const dht = dhtOf({ providers: [PEER], complete: false });
  const counted = {
    ...dht,
    findProviders: (...all: Parameters<typeof dht.findProviders>) => ((asked += 1), dht.findProviders(...all)),
  };
  await withOpened({ dht: () => counted }, async (opened) => {
    const remote = await outcome(opened, ADDRESS);
    assert.ok('providers' in remote);
    assert.deepEqual([remote.source, remote.complete, remote.providers[0]!.id], ['dht', false, PEER.id]);
    opened.store.objects.set(ADDRESS, objectOf(ADDRESS, 0));
    opened.resolving.invalidator.invalidate([ADDRESS]);
    const local = await outcome(opened, ADDRESS);
    assert.ok('providers' in local && local.source === 'db');
    assert.equal(asked, 1);
    opened.evidence.verdicts.set(PEER.id, 'proven');
    const full = await outcome(opened, ADDRESS, 'full');
    assert.ok('providers' in full);
    assert.deepEqual(
      full.providers.map(({ id }) => id),
      [PEER.id, SELF.id],
      'proven ones come first',
    );
  });
});

test('with a DHT, a database that fails or hangs leaves the answer incomplete', async () => {
  for (const gate of [
    () => Promise.reject(new RonError('timeout', 'hung')),
    () => new Promise<void>(() => undefined),
  ]) {
    await withOpened({ dht: () => dhtOf({ providers: [PEER] }) }, async (opened, clock) => {
      opened.store.gate = gate;
      const found = outcome(opened, ADDRESS);
      await clock.advance(600);
      const result = await found;
      assert.ok('providers' in result);
      assert.deepEqual([result.providers.length, result.complete], [1, false]);
    });
  }
});
