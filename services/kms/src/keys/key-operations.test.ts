import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryBackend } from '@ron/custody';
import { isRonError, NEVER } from '@ron/kernel';
import { formatKid } from './kid.ts';
import { SecretOperations } from '../secrets/secret-operations.ts';
import { KeyRegistry } from './key-registry.ts';
import type { KeyVersion } from './key-record.ts';
import { storeWith } from './testing.ts';
import { KeyOperations } from './key-operations.ts';

const NOTHING = new Uint8Array(0);

/** A key with two versions, the first of which has wrapped data. Deletions have no waiting period. */
async function setUp(backend: MemoryBackend) {
  const store = storeWith();
  const registry = new KeyRegistry({ store, keys_max: 10 });
  const work = new KeyOperations(registry, backend, () => 0);
  const secrets = new SecretOperations(registry, backend);
  const { name } = await work.create({ tenant: 'acme', purpose: 'docs', alg: 'aes-256-gcm' }, NEVER);
  const old = formatKid(name, 1);
  const { bytes: wrapped } = await secrets.wrap(old, Buffer.from('a key'), NOTHING, NEVER);
  await work.rotate(old, undefined, NEVER);
  const unwrap = async (): Promise<string> =>
    Buffer.from((await secrets.unwrap(old, wrapped, NOTHING, NEVER)).bytes).toString();
  const close = async (): Promise<void> => {
    await store.close();
    await backend.close();
  };
  return { registry, work, old, unwrap, [Symbol.asyncDispose]: close };
}

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
  await keys.work.delete(keys.old, NEVER);
  const deleted = keys.work.delete(keys.old, NEVER);
  await destroying.promise;
  await assert.rejects(keys.work.restore(keys.old, NEVER), isRefused);
  await assert.rejects(keys.unwrap(), isRefused);
  go.resolve();
  const { deleted: isDeleted, handle }: KeyVersion = await deleted;
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
  await keys.work.delete(keys.old, NEVER);
  await assert.rejects(keys.work.delete(keys.old, NEVER), /pulled out/);
  await assert.rejects(keys.work.restore(keys.old, NEVER), isRefused);
  assert.deepEqual((await keys.work.delete(keys.old, NEVER)).handle, undefined);
});

test('of a concurrent restore and final deletion, the first one wins', async () => {
  await using keys = await setUp(new MemoryBackend());
  await keys.work.delete(keys.old, NEVER);
  const [restored, deleted] = await Promise.all([
    keys.work.restore(keys.old, NEVER),
    keys.work.delete(keys.old, NEVER),
  ]);
  assert.deepEqual([restored.deletable_ms, deleted.deleted], [undefined, undefined]);
  assert.equal(await keys.unwrap(), 'a key');
});
