import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryBackend } from '@ron/custody';
import { isRonError, NEVER } from '@ron/kernel';
import { formatKid } from './kid.ts';
import { SecretOperations } from '../secrets/secret-operations.ts';
import { KeyRegistry } from './key-registry.ts';
import { stateOf, summaryOf, type KeyRecord, type KeyState, type KeyVersion } from './key-record.ts';
import { storeWith } from './testing.ts';
import { KeyLifecycle } from './key-lifecycle.ts';
import { KeyOperations } from './key-operations.ts';

const NOTHING = new Uint8Array(0);

/** A key with two versions, the first of which has wrapped data. Deletions have no waiting period. */
async function setUp(backend: MemoryBackend) {
  const store = storeWith();
  const registry = new KeyRegistry({ store, keys_max: 1000 });
  const make = new KeyOperations(registry, backend);
  const work = new KeyLifecycle(registry, backend, () => 0);
  const secrets = new SecretOperations(registry, backend);
  const { name } = await make.create({ tenant: 'acme', purpose: 'docs', alg: 'aes-256-gcm' }, NEVER);
  const old = formatKid(name, 1);
  const { bytes: wrapped } = await secrets.wrap(old, Buffer.from('a key'), NOTHING, NEVER);
  await make.rotate(old, undefined, NEVER);
  const unwrap = async (): Promise<string> =>
    Buffer.from((await secrets.unwrap(old, wrapped, NOTHING, NEVER)).bytes).toString();
  const close = async (): Promise<void> => {
    await store.close();
    await backend.close();
  };
  return { registry, work, make, secrets, name, old, wrapped, unwrap, [Symbol.asyncDispose]: close };
}

const state = (record: KeyRecord): KeyState => stateOf(record, summaryOf(record));
const isRefused = (error: unknown): boolean => isRonError(error, 'conflict');

test('a version that is being destroyed cannot be restored', async () => {
  const destroying = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  class SlowBackend extends MemoryBackend {
    override async destroy(key: string, signal: AbortSignal): Promise<void> {
      destroying.resolve();
      await go.promise;
      await super.destroy(key, signal);
    }
  }
  await using keys = await setUp(new SlowBackend());
  await keys.work.deleteVersion(keys.old, NEVER);
  const deleted = keys.work.deleteVersion(keys.old, NEVER);
  await destroying.promise;
  await assert.rejects(keys.work.restoreVersion(keys.old, NEVER), isRefused);
  await assert.rejects(keys.unwrap(), isRefused);
  go.resolve();
  const { deleted: isDeleted, handle }: KeyVersion = (await deleted).version!;
  assert.deepEqual([isDeleted, handle], [true, undefined]);
});

test('a deletion that failed in the backend is resumed and cannot be cancelled', async () => {
  let failures = 1;
  class FailingBackend extends MemoryBackend {
    override async destroy(key: string, signal: AbortSignal): Promise<void> {
      await super.destroy(key, signal);
      if (failures-- > 0) throw new Error('the token was pulled out');
    }
  }
  await using keys = await setUp(new FailingBackend());
  await keys.work.deleteVersion(keys.old, NEVER);
  await assert.rejects(keys.work.deleteVersion(keys.old, NEVER), /pulled out/);
  await assert.rejects(keys.work.restoreVersion(keys.old, NEVER), isRefused);
  assert.deepEqual((await keys.work.deleteVersion(keys.old, NEVER)).version!.handle, undefined);
});

test('of a concurrent restore and final deletion, the first one wins', async () => {
  await using keys = await setUp(new MemoryBackend());
  await keys.work.deleteVersion(keys.old, NEVER);
  const [restored, deleted] = await Promise.all([
    keys.work.restoreVersion(keys.old, NEVER),
    keys.work.deleteVersion(keys.old, NEVER),
  ]);
  assert.deepEqual([restored.version!.deletable_ms, deleted.version!.deleted], [undefined, undefined]);
  assert.equal(await keys.unwrap(), 'a key');
});

test('a key with rotate: false is not rotated, even by a registry that reads it from the store', async () => {
  await using backend = new MemoryBackend();
  await using store = storeWith();
  const make = new KeyOperations(new KeyRegistry({ store, keys_max: 10 }), backend);
  const request = { tenant: 'acme', purpose: 'raw', alg: 'ed25519', rotate: false } as const;
  const { name, versions } = await make.create(request, NEVER);
  const reopened = new KeyOperations(new KeyRegistry({ store, keys_max: 10 }), backend);
  for (const operations of [make, reopened]) await assert.rejects(operations.rotate(name, undefined, NEVER), isRefused);
  assert.equal(versions.length, 1);
  assert.equal(new KeyRegistry({ store, keys_max: 10 }).index.record(name).versions.length, 1);
});

test('a key that is disabled wraps, unwraps, derives and rotates nothing, and an enabled one is as before', async () => {
  await using keys = await setUp(new MemoryBackend());
  const before = keys.registry.index.record(keys.name);
  await keys.work.disable(keys.name, NEVER);
  await assert.rejects(keys.unwrap(), isRefused);
  await assert.rejects(keys.secrets.wrap(keys.name, Buffer.from('a key'), NOTHING, NEVER), isRefused);
  await assert.rejects(keys.make.rotate(keys.name, undefined, NEVER), isRefused);
  await keys.work.disable(keys.name, NEVER);
  assert.deepEqual(await keys.work.enable(keys.name, NEVER), before);
  assert.equal(await keys.unwrap(), 'a key');
});

test('a secret that was computed while its key was disabled is not returned', async () => {
  const unwrapping = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  class SlowBackend extends MemoryBackend {
    override async unwrap(...args: Parameters<MemoryBackend['unwrap']>): Promise<Uint8Array> {
      unwrapping.resolve();
      await go.promise;
      return await super.unwrap(...args);
    }
  }
  await using keys = await setUp(new SlowBackend());
  const plaintext = keys.unwrap();
  await unwrapping.promise;
  await keys.work.disable(keys.name, NEVER);
  go.resolve();
  await assert.rejects(plaintext, isRefused);
});

test('a key in its waiting period is disabled, cannot be changed, and is restored to its exact state', async () => {
  for (const wasDisabled of [false, true]) {
    await using keys = await setUp(new MemoryBackend());
    if (wasDisabled) await keys.work.disable(keys.name, NEVER);
    const before = keys.registry.index.record(keys.name);
    assert.equal(state((await keys.work.deleteKey(keys.name, NEVER)).record), 'deleting');
    await assert.rejects(keys.unwrap(), isRefused);
    for (const change of [
      keys.make.rotate(keys.name, undefined, NEVER),
      keys.work.setMinVersion(keys.name, 2, NEVER),
      keys.work.enable(keys.name, NEVER),
      keys.work.disable(keys.name, NEVER),
      keys.work.deleteVersion(keys.old, NEVER),
    ])
      await assert.rejects(change, isRefused);
    assert.deepEqual((await keys.work.restoreKey(keys.name, NEVER)).record, before);
  }
});

test('the deletion of a key destroys all versions, keeps the public parts, and resumes after each failure', async () => {
  let budget = 0;
  const destroyed = new Set<string>();
  class FailingBackend extends MemoryBackend {
    override async destroy(key: string, signal: AbortSignal): Promise<void> {
      if (budget-- <= 0) throw new Error('the token was pulled out');
      await super.destroy(key, signal);
      destroyed.add(key);
    }
  }
  await using keys = await setUp(new FailingBackend());
  const handles = keys.registry.index.record(keys.name).versions.map(({ handle }) => handle!);
  await keys.work.deleteKey(keys.name, NEVER);
  for (budget of [0, 1]) {
    await assert.rejects(keys.work.deleteKey(keys.name, NEVER), /pulled out/);
    assert.equal(state(keys.registry.index.record(keys.name)), 'destroying');
    await assert.rejects(keys.work.restoreKey(keys.name, NEVER), isRefused);
    await assert.rejects(keys.unwrap(), isRefused);
    await assert.rejects(keys.make.rotate(keys.name, undefined, NEVER), isRefused);
  }
  budget = 2;
  const { record } = await keys.work.deleteKey(keys.name, NEVER);
  assert.deepEqual([state(record), [...destroyed].toSorted()], ['deleted', handles.toSorted()]);
  assert.equal(record.versions.length, 2);
  assert.deepEqual((await keys.work.deleteKey(keys.name, NEVER)).record, record, 'a retry changes nothing');
});

test('a version of many, and a key of many versions, are deleted', async () => {
  await using keys = await setUp(new MemoryBackend());
  for (let at = 0; at < 130; at++) await keys.make.rotate(keys.name, undefined, NEVER);
  await keys.work.deleteVersion(keys.old, NEVER);
  await keys.work.deleteVersion(keys.old, NEVER);
  await keys.work.deleteKey(keys.name, NEVER);
  const { record } = await keys.work.deleteKey(keys.name, NEVER);
  assert.equal(state(record), 'deleted');
});
