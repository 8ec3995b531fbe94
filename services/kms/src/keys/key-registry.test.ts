import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { KeyRegistry, type KeyDocumentStore } from './key-registry.ts';
import { EMPTY_DOCUMENT, headOf, type KeyDocument, type KeyRecord } from './key-record.ts';

const NEVER = new AbortController().signal;
const UUID = '0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10';
const name = (tenant: string): string => `${tenant}/docs/ed25519/${UUID}`;
const version = (number: number) => ({ version: number, handle: `k${number}`, public: [], created_ms: 0 });
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

function memory(): KeyDocumentStore & { writes: number; failure: Error | undefined; value: KeyDocument } {
  return {
    value: EMPTY_DOCUMENT,
    version: 0,
    writes: 0,
    failure: undefined,
    async replace(next) {
      if (this.failure !== undefined) throw this.failure;
      this.value = next;
      this.writes += 1;
    },
  };
}

test('concurrent changes share one write, and each sees the earlier ones', async () => {
  const store = memory();
  await using registry = new KeyRegistry({ store, keys_max: 10 });
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
  assert.equal(headOf(store.value.keys[0]!).version, 4);
});

test('a refused change does not affect the others, and a failing disk changes nothing', async () => {
  const store = memory();
  await using registry = new KeyRegistry({ store, keys_max: 10 });
  const refused = registry.change(() => {
    throw new Error('no');
  }, NEVER);
  const [, kept] = await Promise.allSettled([refused, registry.change(() => record('zoo'), NEVER)]);
  await assert.rejects(refused, /no/);
  assert.equal(kept.status, 'fulfilled');
  store.failure = new Error('the disk is full');
  const before = registry.index;
  await assert.rejects(
    registry.change(() => record('acme'), NEVER),
    /full/,
  );
  assert.equal(registry.index, before);
});

test('the number of keys is bounded, and versions never decrease', async () => {
  await using registry = new KeyRegistry({ store: memory(), keys_max: 1 });
  await registry.change(() => record('acme'), NEVER);
  await assert.rejects(
    registry.change(() => record('zoo'), NEVER),
    (error) => isRonError(error, 'storage_full'),
  );
  await registry.change(() => ({ ...record('acme'), versions: [version(1), version(2)] }), NEVER);
  await assert.rejects(
    registry.change(() => record('acme'), NEVER),
    (error) => isRonError(error, 'internal'),
  );
});

test('a kid finds its version, or the current one without a version', async () => {
  await using registry = new KeyRegistry({ store: memory(), keys_max: 1 });
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
