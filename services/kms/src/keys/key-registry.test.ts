import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { MemoryStore, type Change, type RangeInit, type RangeRecord } from '@ron/custody/store';
import { OpLedger } from '../ops/op-ledger.ts';
import { KeyRegistry, type KeyPage } from './key-registry.ts';
import { headOf, type KeyRecord, type KeyVersion } from './key-record.ts';
import { imageWith, STORE_BYTES } from './testing.ts';

const NEVER = new AbortController().signal;
const UUID = '0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10';
const name = (tenant: string): string => `${tenant}/docs/ed25519/${UUID}`;
const version = (number: number): KeyVersion => ({ version: number, handle: `k${number}`, public: [], created_ms: 0 });
const record = (tenant: string): KeyRecord => ({
  name: name(tenant),
  tenant,
  purpose: 'docs',
  alg: 'ed25519',
  verify_mode: 'or',
  min_version: 1,
  imported: false,
  versions: [version(1)],
});

/** A store that counts its writes, and fails on demand. */
class CountedStore extends MemoryStore {
  writes = 0;
  versionsRead = 0;
  failure: Error | undefined;

  constructor() {
    super(STORE_BYTES);
  }

  override range(table: string, init: RangeInit): RangeRecord[] {
    const found = super.range(table, init);
    if (table === 'versions') this.versionsRead += found.length;
    return found;
  }

  protected override async write(changes: readonly Change[]): Promise<void> {
    await Promise.resolve();
    if (this.failure !== undefined) throw this.failure;
    this.writes += 1;
    await super.write(changes);
  }
}

const isFull = (error: unknown): boolean => isRonError(error, 'storage_full');

test('concurrent changes share one write, and each sees the earlier ones', async () => {
  await using store = new CountedStore();
  const registry = new KeyRegistry({ store, keys_max: 10 });
  await registry.change(() => record('acme'), NEVER);
  const rotate = () =>
    registry.change((index) => {
      const now = index.get(name('acme'))!;
      return { ...now, versions: [...now.versions, version(headOf(now).version + 1)] };
    }, NEVER);
  const heads = (await Promise.all([rotate(), rotate(), rotate()])).map((each) => headOf(each).version);
  // [kms I-2]
  assert.deepEqual(heads, [2, 3, 4]);
  assert.equal(store.writes, 2);
  const again = new KeyRegistry({ store, keys_max: 10 });
  assert.deepEqual(again.index.get(name('acme')), registry.index.get(name('acme')));
  assert.deepEqual([again.index.size, store.count('versions')], [1, 4]);
});

test('a refused change does not affect the others, and a failing disk changes nothing', async () => {
  await using store = new CountedStore();
  const registry = new KeyRegistry({ store, keys_max: 10 });
  const refused = registry.change(() => {
    throw new Error('no');
  }, NEVER);
  const [, kept] = await Promise.allSettled([refused, registry.change(() => record('zoo'), NEVER)]);
  await assert.rejects(refused, /no/);
  assert.equal(kept.status, 'fulfilled');
  store.failure = new Error('the disk is full');
  const before = registry.index.get(name('zoo'));
  const add = { ...before!, versions: [version(1), version(2)] };
  await assert.rejects(
    registry.change(() => add, NEVER),
    /full/,
  );
  assert.equal(registry.index.get(name('zoo')), before);
  store.failure = undefined;
  assert.equal((await registry.change((index) => index.get(name('zoo'))!, NEVER)).versions.length, 1);
});

test('keys and versions are bounded, one tenant leaves room for others, and versions never decrease', async () => {
  await using store = new CountedStore();
  const registry = new KeyRegistry({ store, keys_max: 4 });
  const add = (tenant: string, at: number): Promise<KeyRecord> =>
    registry.change(() => ({ ...record(tenant), name: `${name(tenant).slice(0, -1)}${at}` }), NEVER);
  await add('acme', 0);
  await add('acme', 1);
  await assert.rejects(add('acme', 2), isFull, 'one tenant holds as many as are free');
  await add('zoo', 0);
  await assert.rejects(add('zoo', 1), isFull);
  await add('other', 0);
  await assert.rejects(add('last', 0), isFull);
  const key = `${name('acme').slice(0, -1)}0`;
  const rotate = (versions: number): Promise<KeyRecord> =>
    registry.change((index) => {
      const now = index.get(key)!;
      return { ...now, versions: Array.from({ length: versions }, (_, at) => now.versions[at] ?? version(at + 1)) };
    }, NEVER);
  // 40 versions in all, of which 4 exist: with 17 more, acme holds as many as are free.
  for (let versions = 2; versions <= 18; versions++) await rotate(versions);
  await assert.rejects(rotate(19), isFull);
  await assert.rejects(rotate(1), (error) => isRonError(error, 'internal'));
});

test('a version that an operation made is found by its id until its answer is stored', async () => {
  await using store = new CountedStore();
  const registry = new KeyRegistry({ store, keys_max: 4 });
  const mark = { op_id: 'x', request_hash: 'h' };
  assert.equal(registry.madeBy('acme', mark), undefined);
  const made = { ...version(1), made_by: mark, created_ms: Date.now() };
  await registry.change(() => ({ ...record('acme'), versions: [made] }), NEVER);
  assert.equal(registry.madeBy('acme', mark), `${name('acme')}#v1`);
  assert.equal(registry.madeBy('zoo', mark), undefined);
  assert.throws(
    () => registry.madeBy('acme', { op_id: 'x', request_hash: 'other' }),
    (error) => isRonError(error, 'conflict'),
  );
  const ledger = new OpLedger({ store, entries_max: 10 });
  await ledger.once({ tenant: 'acme', op_id: 'x', request: {} }, async () => 'stored', NEVER);
  assert.equal(registry.madeBy('acme', mark), undefined);
});

test('pages list keys in the order of their names, and a key with many versions is read in steps', async () => {
  await using store = new CountedStore();
  const registry = new KeyRegistry({ store, keys_max: 1000 });
  for (const tenant of ['b', 'a', 'c', 'ab']) await registry.change(() => record(tenant), NEVER);
  const page = async (prefix: string, after: string, limit: number): Promise<(string[] | string)[]> => {
    const { keys, next } = await registry.page({ prefix, after, limit }, { signal: NEVER });
    return [keys.map(({ fields }) => fields.tenant), ...(next === undefined ? [] : [next])];
  };
  assert.deepEqual(await page('', '', 10), [['a', 'ab', 'b', 'c']]);
  assert.deepEqual(await page('', '', 4), [['a', 'ab', 'b', 'c']], 'no key follows');
  assert.deepEqual(await page('', name('ab'), 1), [['b'], name('b')]);
  assert.deepEqual(await page('a/', '', 10), [['a']]);
  assert.deepEqual(await page('b/', name('b'), 10), [[]]);
  const versions = Array.from({ length: 300 }, (_, at) => version(at + 1));
  await registry.change((index) => ({ ...index.get(name('a'))!, versions }), NEVER);
  const again = new KeyRegistry({ store, keys_max: 1000 });
  await again.ready([`${name('a')}#v7`, 'no kid', name('none')], { signal: NEVER });
  assert.equal(again.ready([name('a')], { signal: NEVER }), undefined, 'it is in memory');
  assert.equal(headOf(again.index.get(name('a'))!).version, 300);
});

test('a list reads one version of each key, and a page ends at the limit of versions', async () => {
  await using store = new CountedStore();
  const registry = new KeyRegistry({ store, keys_max: 10_000 });
  const tenants = Array.from({ length: 24 }, (_, at) => `t${String(at).padStart(2, '0')}`);
  const versions = Array.from({ length: 1000 }, (_, at) => version(at + 1));
  const marked = versions.with(1, { ...versions[1]!, deletable_ms: 5 }).with(2, { ...versions[2]!, deleted: true });
  for (const tenant of tenants) await registry.change(() => ({ ...record(tenant), versions: marked }), NEVER);
  store.versionsRead = 0;
  const again = new KeyRegistry({ store, keys_max: 10_000 });
  const found: string[] = [];
  let pages = 0;
  for (let after: string | undefined = ''; after !== undefined; pages++) {
    const page: KeyPage = await again.page({ prefix: '', after, limit: 1000 }, { signal: NEVER });
    for (const { fields, head, summary } of page.keys) {
      found.push(fields.tenant);
      assert.equal(head.version, 1000);
      assert.deepEqual(summary, { count: 1000, deleted: [3], deleting: [[2, 5]], has_material: true });
    }
    after = page.next;
  }
  assert.deepEqual([found, pages, store.versionsRead], [tenants, tenants.length / 8, tenants.length]);
  await assert.rejects(again.page({ prefix: '', after: '', limit: 1000 }, { signal: AbortSignal.abort() }));
});

test('a list leaves turns of the event loop to others', async () => {
  await using store = new CountedStore();
  const registry = new KeyRegistry({ store, keys_max: 1000 });
  for (let at = 0; at < 100; at++) await registry.change(() => record(`t${at}`), NEVER);
  let turns = 0;
  const count = (): void => {
    turns += 1;
    next = setImmediate(count);
  };
  let next = setImmediate(count);
  await registry.page({ prefix: '', after: '', limit: 1000 }, { signal: NEVER });
  clearImmediate(next);
  assert.ok(turns >= 5, `${turns} turns`);
});

test('a key that an earlier release stored is listed as any other', async () => {
  const old = record('acme');
  const versions = [version(1), { ...version(2), deleted: true as const }, version(3)];
  const image = imageWith([{ ...old, versions }]) as Map<string, Map<string, Uint8Array>>;
  image.get('keys')!.set(old.name, Buffer.from(JSON.stringify({ ...old, versions: 3 })));
  await using store = new MemoryStore(STORE_BYTES, image);
  const registry = new KeyRegistry({ store, keys_max: 10 });
  const { keys } = await registry.page({ prefix: '', after: '', limit: 10 }, { signal: NEVER });
  assert.deepEqual(keys[0]?.summary, { count: 3, deleted: [2], deleting: [], has_material: true });
  assert.equal(keys[0]?.head.version, 3);
});

test('a kid finds its version, or the current one without a version', async () => {
  await using store = new CountedStore();
  const registry = new KeyRegistry({ store, keys_max: 2 });
  await registry.change(() => ({ ...record('acme'), versions: [version(1), version(2)] }), NEVER);
  const { index } = registry;
  assert.equal(index.find(name('acme')).version.version, 2);
  assert.equal(index.find(`${name('acme')}#v1`).version.version, 1);
  assert.equal(index.current(`${name('acme')}#v2`).version.version, 2);
  assert.throws(
    () => index.current(`${name('acme')}#v1`),
    (error) => isRonError(error, 'conflict'),
  );
  assert.throws(
    () => index.find(`${name('acme')}#v3`),
    (error) => isRonError(error, 'not_found'),
  );
  assert.throws(
    () => index.find(`${name('acme')}#v12`),
    (error) => isRonError(error, 'not_found'),
  );
  assert.throws(
    () => index.find(name('zoo')),
    (error) => isRonError(error, 'not_found'),
  );
  assert.throws(
    () => index.find(`${name('acme')}#x`),
    (error) => isRonError(error, 'validation'),
  );
});

/** A store that lets another change happen while versions are read. */
class InterruptedStore extends MemoryStore {
  interrupt: (() => Promise<unknown>) | undefined;

  override async prefetch(table?: string): Promise<void> {
    const { interrupt } = this;
    if (table !== 'versions' || interrupt === undefined) return;
    this.interrupt = undefined;
    await interrupt();
  }
}

test('a key that changes while it is loaded is not kept as a mixture of two states', async () => {
  await using store = new InterruptedStore(STORE_BYTES, imageWith([record('acme')]));
  const registry = new KeyRegistry({ store, keys_max: 10 });
  const changed: KeyRecord = { ...record('acme'), min_version: 2, versions: [version(1), version(2)] };
  store.interrupt = () => registry.change(() => changed, NEVER);
  await registry.ready([`${name('acme')}#1`], { signal: NEVER });
  assert.equal(store.interrupt, undefined);
  assert.deepEqual(registry.index.get(name('acme')), changed);
});
